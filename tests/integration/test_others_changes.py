"""What others did to a result table is noticed by the next plan, and can be taken back or accepted by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from coset.batches.planning import preview, take_up
from coset.batches.publication import publish
from coset.batches.tables.compaction import compact
from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.model.graph import Mode
from spark_jobs.tables.table_schema import folder
from tests.histories import Click, History
from tests.late import arrive, decided, pipeline, published
from tests.logs import log_of


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
