"""What the kernel's receipts say of records that were really landed."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.artefact import Role
from partitioning.values import replace
from tests.activity import CLICKS, VIEWS, activity, assert_proved, land, plan_for, ran_all, run_all


@pytest.fixture
def source(store: Store) -> str:
    return f"{store.root}/topics"


def test_the_sampled_keys_are_the_keys_each_with_its_task_and_first_offset(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source), "tasks(5)")
    sampled: set[str] = set()
    for ran in ran_all(plan, store):
        rows, receipt = ran.sample.to_pylist(), ran.receipt
        assert {row["stage"] for row in rows} == {receipt.task.stage}
        assert len(rows) == sum(each.keys for each in receipt.partitions)
        for row in rows:
            sampled.add(str(row["key"]))
            assert placement_hash(row["key"]) % 5 == row["task"] == receipt.task.task
            assert placement_hash(row["key"]) % {"views": 8, "clicks": 12}[str(row["input"])] == row["partition"]
    assert sampled == {*VIEWS["k"].to_pylist(), *CLICKS["k"].to_pylist()}


def test_a_sample_of_the_keys_is_the_same_keys_in_every_stream(source: str, store: Store) -> None:
    land(source)
    plan = replace(plan_for(activity(source)), key_sample=3)
    sampled: dict[str, set[str]] = {"views": set(), "clicks": set()}
    for ran in ran_all(plan, store):
        for row in ran.sample.to_pylist():
            sampled[str(row["input"])].add(str(row["key"]))
    expected = {key for key in CLICKS["k"].to_pylist() if placement_hash(key) // 4 % 3 == 0}
    assert sampled["clicks"] == expected
    assert sampled["views"] == expected & set(VIEWS["k"].to_pylist())


@pytest.mark.parametrize("condition", ["v < 0", "false"], ids=["no record is left", "none is read"])
def test_receipts_are_complete_although_sql_stops_early(source: str, store: Store, condition: str) -> None:
    land(source)
    pipeline = Pipeline("nothing", source=source)
    views = pipeline.stream("views", key="k", partitions=8).filter(condition)
    clicks = pipeline.stream("clicks", key="k", partitions=12)
    clicks.join(views, "views.v").write("nothing")
    plan = plan_for(pipeline)
    receipts = run_all(plan, store)
    assert [receipt.left(Role.TABLE) for receipt in receipts] == [()] * 4
    assert_proved(plan, receipts)
