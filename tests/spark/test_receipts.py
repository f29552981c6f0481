"""What the kernel's receipts say of records that were really landed."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.artefact import Role
from partitioning.model.placement import OPAQUE
from partitioning.model.receipt import MODULUS, Offender, Violation, offset_digest
from partitioning.model.streams import NullKeys
from partitioning.values import replace
from tests.activity import (
    CLICKS,
    VIEWS,
    activity,
    assert_proved,
    land,
    plan_for,
    ran_all,
    receipts_of,
    rows_of,
    run_all,
)
from tests.landed import land_file


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


def test_records_without_a_key_that_are_refused_are_named(source: str, store: Store) -> None:
    views = VIEWS.set_column(0, "k", pa.array([None if n in {7, 11} else f"key-{n}" for n in range(1500)]))
    land(source, views=views)
    seen = receipts_of(run_all(plan_for(activity(source, null_keys=NullKeys.REFUSE), "tasks(16)"), store), "views")
    offenders = [offender for each in chain.from_iterable(seen.values()) for offender in each.offenders]
    assert sum(each.nulls for each in chain.from_iterable(seen.values())) == 2
    assert [(offender.violation, offender.partition, offender.key) for offender in offenders] == [
        (Violation.NULL_KEY, 0, None),
        (Violation.NULL_KEY, 1, None),
    ]


def test_a_record_in_a_foreign_partition_is_named_with_its_key_and_offset(source: str, store: Store) -> None:
    land(source)
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 6)
    end = plan_for(activity(source)).stream("views").partitions[2].end
    land_file(pa.table({"k": [key], "v": [1]}), "views", source, 2, end)
    plan = plan_for(activity(source))
    (seen,) = receipts_of(run_all(plan, store), "views")[2]
    assert (seen.foreign, seen.stray) == (1, 0)
    assert seen.offenders == (Offender(Violation.FOREIGN, 2, end, key),)
    (seen,) = receipts_of(run_all(plan_for(activity(source), "tasks(8)"), store), "views")[2]
    assert (seen.foreign, seen.stray) == (1, 1)


def test_opaque_placement_is_not_checked_by_hash(source: str, store: Store) -> None:
    land(source)
    end = plan_for(activity(source)).stream("views").partitions[2].end
    land_file(pa.table({"k": [f"new-{n}" for n in range(50)], "v": [1] * 50}), "views", source, 2, end)
    plan = plan_for(activity(source, hash=OPAQUE), "tasks(2)")
    receipts = run_all(plan, store)
    assert_proved(plan, receipts)
    assert {"new-7"} <= {row[0] for row in rows_of(store, receipts, "activity")}


@pytest.mark.parametrize(
    ("offsets", "disorder"),
    [([0, 2, 1, 3], 3), ([0, 1, 1, 3], 2), ([0, 0, 3, 3], 3)],
    ids=["swapped", "twice", "twice twice"],
)
def test_offsets_out_of_order_are_seen(source: str, store: Store, offsets: list[int], disorder: int) -> None:
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 0)
    land(source, views=VIEWS.slice(0, 0))
    # The footer's statistics and the number of records are as they should be.
    land_file(pa.table({"k": [key] * 4, "v": [1] * 4}), "views", source, 0, 0, offsets=offsets)
    (seen,) = receipts_of(run_all(plan_for(activity(source)), store), "views")[0]
    assert (seen.read, seen.disorder) == (4, disorder)
    assert {offender.violation for offender in seen.offenders} == {Violation.OFFSET}
    good = sum(offset_digest(offset) for offset in range(4)) % MODULUS
    assert (int(seen.digest, 16) == good) == (sorted(offsets) == [0, 1, 2, 3])
