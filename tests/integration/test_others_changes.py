"""What others did to a result table, and what its own rules forbid: noticed, taken back or accepted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType
from typer.testing import CliRunner

from coset.batches.attempt import Attempt
from coset.batches.planning import disagreements, preview, take_up
from coset.batches.publication import decide, publish
from coset.batches.tables.compaction import compact
from coset.cli.main import app
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.model.table_mode import Mode
from spark_jobs.tables.table_schema import folder
from tests import late
from tests.batches import PASSED, erase
from tests.histories import Click, History
from tests.late import arrive, decided, pipeline, published
from tests.logs import log_of
from tests.refused import finding_of
from tests.running import run_groups


def delta(store: Store, version: int | None = None) -> DeltaTable:
    return log_of(store, "delays", version)


def rows(store: Store) -> int:
    return len(delta(store).to_pyarrow_table())


@pytest.fixture
def two(store: Store) -> Store:
    """A table with two batches, of which the second is in version 2; and flights for a third."""
    for first in (0, 10, 20):
        arrive(store, first, 10)
        if first < 20:
            published(store)
    assert (delta(store).version(), rows(store)) == (2, 80)
    return store


def one_row(store: Store, mode: Literal["append", "overwrite"]) -> None:
    mine = pa.table({"tailnum": ["N1"], "delay": pa.array([1], pa.int64())})
    if mode == "append":
        write_deltalake(delta(store), mine, mode="append")
    else:
        write_deltalake(delta(store), mine, mode="overwrite")


CHANGES: dict[str, Callable[[Store], object]] = {
    "RESTORE": lambda store: delta(store).restore(1),
    "DELETE": lambda store: delta(store).delete("tailnum = 'N1-1'"),
    "UPDATE": lambda store: delta(store).update(predicate="tailnum = 'N1-1'", updates={"delay": "7"}),
    "WRITE (Append)": lambda store: one_row(store, "append"),
    "WRITE (Overwrite)": lambda store: one_row(store, "overwrite"),
}


def refused(store: Store) -> list[Finding]:
    with pytest.raises(Refused) as error:
        take_up(pipeline(store.root), store)
    with pytest.raises(Refused):
        preview(pipeline(store.root), store)
    return list(error.value.findings)


def accepted(store: Store, finding: Finding) -> None:
    """Do what a finding says to let the change stay."""
    command = finding.then.rpartition("`coset ")[2].rstrip("`").replace("'…'", "because")
    done = CliRunner().invoke(app, [*command.split(), "--store", store.root])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("operation", CHANGES)
def test_what_others_did_is_noticed_and_taken_back(operation: str, two: Store) -> None:
    CHANGES[operation](two)
    (finding,) = refused(two)
    assert finding.what.startswith(f"version 3 of the table is not by pipeline 'late': {operation}")
    assert finding.where == folder(two, "delays")
    assert ".restore(2)`" in finding.then
    # As it says.
    delta(two).restore(2)
    published(two)
    assert rows(two) == 120


@pytest.mark.parametrize("operation", CHANGES)
def test_what_others_did_is_accepted_by_name(operation: str, two: Store) -> None:
    CHANGES[operation](two)
    left = rows(two)
    (finding,) = refused(two)
    assert "`coset accept-changes delays --up-to 3 --why '…'`" in finding.then
    accepted(two, finding)
    entry = delta(two).history(1)[0]
    assert (entry["coset.accepted"], entry["coset.why"], bool(entry["coset.who"])) == ("3", "because", True)
    published(two)
    assert rows(two) == left + 40
    # It was that change that was accepted, and no other.
    arrive(two, 30, 10)
    CHANGES["DELETE"](two)
    assert [finding.what.partition(":")[0] for finding in refused(two)] == [
        "version 6 of the table is not by pipeline 'late'"
    ]


def test_all_changes_are_told(two: Store) -> None:
    one_row(two, "append")
    delta(two).delete("tailnum = 'N1-1'")
    (finding,) = refused(two)
    assert [place.what.partition(" of")[0] for place in finding.places] == ["version 3", "version 4"]
    accepted(two, finding)
    published(two)


def test_what_others_did_between_a_plan_and_its_publication_is_noticed_by_the_next_plan(two: Store) -> None:
    plan = take_up(pipeline(two.root), two).plan
    assert plan is not None
    CHANGES["DELETE"](two)
    publish(decided(two, plan), plan)
    arrive(two, 30, 10)
    (finding,) = refused(two)
    assert finding.what.startswith("version 3 of the table is not by pipeline 'late': DELETE")
    # To restore the table would take the batch away.
    assert ".restore(" not in finding.then
    accepted(two, finding)
    published(two)


def test_what_changes_no_rows_is_nothing_to_notice(two: Store) -> None:
    delta(two).optimize.compact()
    delta(two).vacuum(0, dry_run=False, enforce_retention_duration=False)
    delta(two).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    delta(two).create_checkpoint()
    published(two)
    arrive(two, 30, 10)
    compact(pipeline(two.root), two, timedelta(days=7))
    published(two)
    assert rows(two) == 160


def test_a_log_that_has_lost_its_last_entries_says_nothing_of_others(two: Store) -> None:
    one_row(two, "append")
    delta(two).create_checkpoint()
    for version in range(3):
        two.delete(f"tables/delays/_delta_log/{version:020}.json")
    assert [finding.what.partition(" of ")[0].partition(",")[0] for finding in refused(two)] == [
        "version 3",
        "the log has lost version 2",
    ]
    accepted(two, refused(two)[-1])
    published(two)


def test_older_entries_may_be_gone(two: Store) -> None:
    delta(two).create_checkpoint()
    for version in range(2):
        two.delete(f"tables/delays/_delta_log/{version:020}.json")
    published(two)


def kept(mode: Mode) -> Callable[[str, int], Pipeline]:
    def of(source: str, partitions: int) -> Pipeline:
        made = Pipeline("kept", source=source)
        clicks = made.stream("clicks", key="k", partitions=partitions)
        clicks.latest("seen", name="newest").to_stream().write("delays", mode=mode)
        return made

    return of


@pytest.mark.parametrize("mode", [Mode.UPSERT, Mode.REPLACE])
def test_a_batch_that_writes_the_rows_anew_has_mended_them(mode: Mode, store: Store, tmp_path: Path) -> None:
    history = History(store, tmp_path, kept(mode))
    clicks = [Click(f"key-{number}", number, 1) for number in range(40)]
    for _ in range(2):
        history.land(clicks, [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    history.land(clicks, [], 4)
    ref = history.plan(Settings(), 4)
    delta(store).delete("k = 'key-1'")
    history.publish(ref, judged=False)
    history.land(clicks, [], 4)
    history.publish(history.plan(Settings(), 4), judged=False)
    assert rows(store) == 40


def test_only_versions_that_there_are_can_be_accepted(two: Store) -> None:
    def accept(table: str, version: int) -> tuple[int, str]:
        words = ["accept-changes", table, "--up-to", str(version), "--why", "mistaken", "--store", two.root]
        done = CliRunner().invoke(app, words)
        return done.exit_code, done.output

    code, said = accept("delays", 3)
    assert (code, "the table has versions 0 to 2" in said) == (3, True)
    code, said = accept("nothing", 3)
    assert (code, "there is no such table" in said) == (3, True)
    assert Ledger(two, "late").standing().published is not None


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (("late/",), "the table holds batch 0, but the ledger's last published batch is none"),
        (("late/verdicts/0.json", "late/commits/0.json"), "the table holds batch 0"),
        (("tables/",), "batch 0 is published, but the table holds none"),
    ],
    ids=["all documents", "the verdict", "the table"],
)
def test_a_table_or_ledger_that_lost_what_the_other_has_is_refused(
    lost: tuple[str, ...], said: str, store: Store
) -> None:
    arrive(store, 0, 10)
    published(store)
    erase(store.root, *(entry.key for each in lost for entry in store.list(each)))
    with pytest.raises(Refused, match=said):
        take_up(pipeline(store.root), store)


def test_a_new_table_of_an_old_pipeline_is_no_disagreement(store: Store) -> None:
    arrive(store, 0, 10)
    plan = published(store)
    assert disagreements("tails", plan, {"delays": 0, "new": None}, store.root) == ()
    assert len(disagreements("tails", plan, {"delays": 1, "new": 1}, store.root)) == 2


def delta_of(store: Store, table: str = "delays") -> DeltaTable:
    return log_of(store, table)


def made(store: Store, *fields: Field) -> None:
    """A table without rows, as somebody makes it before there is a batch."""
    columns = Schema(list(fields or (Field("tailnum", PrimitiveType("string")), Field("delay", PrimitiveType("long")))))
    DeltaTable.create(folder(store, "delays"), columns, storage_options=storage_options())


def constraint(store: Store) -> None:
    made(store)
    delta_of(store).alter.add_constraint({"early": "delay < 0"})


def not_null(store: Store) -> None:
    made(store, Field("tailnum", PrimitiveType("string"), nullable=False), Field("delay", PrimitiveType("long")))


def generated(store: Store) -> None:
    made(
        store,
        Field("tailnum", PrimitiveType("string")),
        Field("delay", PrimitiveType("long"), metadata={"delta.generationExpression": "1 + 1"}),
    )


def feature(kind: TableFeatures) -> Callable[[Store], None]:
    def with_it(store: Store) -> None:
        made(store)
        delta_of(store).alter.add_feature(kind, allow_protocol_versions_increase=True)

    return with_it


@pytest.mark.parametrize(
    ("rule", "what", "then"),
    [
        (constraint, "the table has the CHECK constraint 'early': delay < 0", "alter.drop_constraint('early')"),
        (not_null, "column 'tailnum' must not be null in the table", "alter.drop_column_not_null('tailnum')"),
        (generated, "column 'delay' has the rule delta.generationExpression: 1 + 1", "table of another name"),
        (feature(TableFeatures.RowTracking), "the table needs the writer feature 'rowTracking'", "another name"),
        (
            feature(TableFeatures.DeletionVectors),
            "the table needs the writer feature 'deletionVectors'",
            "another name",
        ),
        (feature(TableFeatures.ColumnMapping), "the table needs the writer feature 'columnMapping'", "another name"),
    ],
    ids=["check", "not null", "generated", "row tracking", "deletion vectors", "column mapping"],
)
def test_a_rule_that_coset_does_not_keep_is_refused_by_name(
    rule: Callable[[Store], None], what: str, then: str, store: Store
) -> None:
    late.arrive(store, 0, 10)
    rule(store)
    finding = finding_of(take_up, late.pipeline(store.root), store)
    assert finding.what.startswith(what)
    assert then in finding.then
    assert Ledger(store, "late").plan(0) is None


def test_a_constraint_that_came_after_the_plan_is_refused_and_its_next_step_works(store: Store) -> None:
    late.arrive(store, 0, 10)
    made(store)
    plan = take_up(late.pipeline(store.root), store).plan
    assert plan is not None
    ledger = late.decided(store, plan)
    delta_of(store).alter.add_constraint({"early": "delay < 0"})
    with pytest.raises(Refused, match="the table has the CHECK constraint 'early': delay < 0") as refused:
        publish(ledger, plan)
    assert "alter.drop_constraint('early')" in refused.value.findings[0].then
    delta_of(store).alter.drop_constraint("early")
    publish(ledger, plan)
    assert len(delta_of(store).to_pyarrow_table()) == 40


def test_features_that_change_nothing_for_a_batch_are_no_rules(store: Store) -> None:
    late.arrive(store, 0, 10)
    made(store)
    for kind in (TableFeatures.AppendOnly, TableFeatures.Invariants, TableFeatures.ChangeDataFeed):
        delta_of(store).alter.add_feature(kind, allow_protocol_versions_increase=True)
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "true"})
    late.published(store)
    assert len(delta_of(store).to_pyarrow_table()) == 40


def counted(mode: Mode) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        made = Pipeline("kept", source=source)
        clicks = made.stream("clicks", key="k", partitions=partitions)
        clicks.aggregate("count(*) AS n", name="counted").to_stream().write("delays", mode=mode)
        return made

    return pipeline


@pytest.mark.parametrize("mode", [Mode.UPSERT, Mode.REPLACE])
def test_a_table_that_may_only_be_appended_to_is_refused_where_rows_go(
    mode: Mode, store: Store, tmp_path: Path
) -> None:
    history = History(store, tmp_path, counted(mode))
    history.land([Click("key-1", 1, 1)], [], 4)
    history.publish(history.plan(Settings(), 4), judged=False)
    history.land([Click("key-1", 2, 2)], [], 4)
    open_batch = history.plan(Settings(), 4)
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "true"})
    what = "the table may only be appended to (delta.appendOnly), but the commit removes rows"
    with pytest.raises(Refused) as refused:
        history.publish(open_batch, judged=False)
    assert [finding.what for finding in refused.value.findings] == [what]
    unset = "alter.set_table_properties({'delta.appendOnly': 'false'})"
    assert unset in refused.value.findings[0].then
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "false"})
    history.publish(open_batch, judged=False)
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "true"})
    history.land([Click("key-1", 3, 3)], [], 4)
    with pytest.raises(Refused, match="may only be appended to"):
        history.plan(Settings(), 4)


@pytest.mark.parametrize("mode", [Mode.UPSERT, Mode.REPLACE])
def test_a_decided_batch_of_such_a_table_is_published_once_the_property_is_gone(
    mode: Mode, store: Store, tmp_path: Path
) -> None:
    history = History(store, tmp_path, counted(mode))
    for minute in (1, 2):
        history.land([Click("key-1", minute, minute)], [], 4)
        ref = history.plan(Settings(), 4)
        if minute == 1:
            history.publish(ref, judged=False)
    ledger, plan = ref.load()
    run_groups(ref)
    decide(Attempt(ledger, plan, 0), PASSED)
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(Refused, match="may only be appended to"):
        publish(ledger, plan)
    delta_of(store).alter.set_table_properties({"delta.appendOnly": "false"})
    publish(ledger, plan)
    assert len(delta_of(store).to_pyarrow_table()) == 1
