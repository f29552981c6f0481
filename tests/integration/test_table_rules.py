"""What a table's own rules forbid is refused before a batch runs, or when it is published, and the next step works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.schema import PrimitiveType

from coset.batches.attempt import Attempt
from coset.batches.planning import take_up
from coset.batches.publication import decide, publish
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.graph import Mode
from spark_jobs.tables.table_schema import folder
from tests import late
from tests.batches import PASSED
from tests.histories import Click, History
from tests.logs import log_of
from tests.refused import finding_of
from tests.running import run_groups


def delta(store: Store, table: str = "delays") -> DeltaTable:
    return log_of(store, table)


def made(store: Store, *fields: Field) -> None:
    """A table without rows, as somebody makes it before there is a batch."""
    columns = Schema(list(fields or (Field("tailnum", PrimitiveType("string")), Field("delay", PrimitiveType("long")))))
    DeltaTable.create(folder(store, "delays"), columns, storage_options=storage_options())


def constraint(store: Store) -> None:
    made(store)
    delta(store).alter.add_constraint({"early": "delay < 0"})


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
        delta(store).alter.add_feature(kind, allow_protocol_versions_increase=True)

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
    delta(store).alter.add_constraint({"early": "delay < 0"})
    with pytest.raises(Refused, match="the table has the CHECK constraint 'early': delay < 0") as refused:
        publish(ledger, plan)
    assert "alter.drop_constraint('early')" in refused.value.findings[0].then
    delta(store).alter.drop_constraint("early")
    publish(ledger, plan)
    assert len(delta(store).to_pyarrow_table()) == 40


def test_features_that_change_nothing_for_a_batch_are_no_rules(store: Store) -> None:
    late.arrive(store, 0, 10)
    made(store)
    for kind in (TableFeatures.AppendOnly, TableFeatures.Invariants, TableFeatures.ChangeDataFeed):
        delta(store).alter.add_feature(kind, allow_protocol_versions_increase=True)
    delta(store).alter.set_table_properties({"delta.appendOnly": "true"})
    late.published(store)
    assert len(delta(store).to_pyarrow_table()) == 40


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
    delta(store).alter.set_table_properties({"delta.appendOnly": "true"})
    what = "the table may only be appended to (delta.appendOnly), but the commit removes rows"
    with pytest.raises(Refused) as refused:
        history.publish(open_batch, judged=False)
    assert [finding.what for finding in refused.value.findings] == [what]
    unset = "alter.set_table_properties({'delta.appendOnly': 'false'})"
    assert unset in refused.value.findings[0].then
    delta(store).alter.set_table_properties({"delta.appendOnly": "false"})
    history.publish(open_batch, judged=False)
    delta(store).alter.set_table_properties({"delta.appendOnly": "true"})
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
    delta(store).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(Refused, match="may only be appended to"):
        publish(ledger, plan)
    delta(store).alter.set_table_properties({"delta.appendOnly": "false"})
    publish(ledger, plan)
    assert len(delta(store).to_pyarrow_table()) == 1
