"""A key with 40 % of the records, split by offset ranges: from plan to published table, against DuckDB."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from coset.batches.planning import preview
from partitioning.documents.document import encode
from partitioning.documents.store import Store
from partitioning.explain.reason_texts import stage_reason
from partitioning.model.plan import Plan
from partitioning.model.private import MASK
from partitioning.model.reasons import HotRanges
from tests.hot import HOT, Skewed, counted, counted_on, skewed
from tests.there import there

COUNTED = "SELECT k, count(*), sum(v) FROM views WHERE v % 10 < 9 GROUP BY k"


def ranges(plan: Plan) -> HotRanges | None:
    return next((stage.why for stage in plan.stages if isinstance(stage.why, HotRanges)), None)


def longest(plan: Plan) -> Fraction:
    """What the task that reads most of the stream reads beside the mean of all that read some of it."""
    read = [
        sum(part.records for read in stage.streams for part in plan.stream(read.name).read_by(task))
        for stage in plan.stages
        for task in stage.tasks
    ]
    some = [records for records in read if records]
    return Fraction(max(some) * len(some), sum(some))


def test_a_hot_key_is_split_and_the_table_is_as_duckdb_says(store: Store, tmp_path: Path) -> None:
    skew = Skewed(store, counted)
    skew.land(skewed(20_000, seed=1))
    whole = skew.run()
    assert [stage.name for stage in whole.stages] == ["views"]
    skew.land(skewed(24_000, seed=2))
    plan = skew.run(tmp_path)
    assert [(stage.name, stage.wave) for stage in plan.stages] == [("views.hot", 0), ("views", 1)]
    why = there(ranges(plan))
    assert HOT in [split.key for split in why.partitions]
    assert longest(whole) > 3
    assert longest(plan) <= Fraction(13, 10)
    assert skew.rows() == skew.direct(COUNTED)


@pytest.mark.long
def test_a_running_result_is_continued_by_its_owner_whether_its_key_is_split_or_not(store: Store) -> None:
    skew = Skewed(store, counted_on)
    for number, (hot_keys, scheme) in enumerate(
        [("split", ""), ("split", ""), ("leave", "tasks(5)"), ("split", "elastic(2)"), ("split", "")]
    ):
        skew.land(skewed(6_000, seed=number))
        plan = skew.run(None, hot_keys, *([scheme] if scheme else []))
        assert (ranges(plan) is not None) == (number > 0 and hot_keys == "split")
    assert skew.newest("n, v") == skew.direct_of_all("SELECT k, count(*), sum(v) FROM views GROUP BY k")


def test_a_hot_key_stays_split_until_it_is_no_longer_heavy(store: Store) -> None:
    skew = Skewed(store, counted)
    split = []
    # By the batch before; a key with a twentieth of the records is not split anew, and stays so if it was.
    for number, hot in enumerate([0.4, 0.05, 0.05, 0.0, 0.05, 0.05]):
        skew.land(skewed(12_000, seed=number, hot=hot, others=10_000_000))
        split.append(ranges(skew.run()) is not None)
    assert split == [False, True, True, False, False, False]
    assert skew.rows() == skew.direct(COUNTED)


def test_a_private_key_is_split_and_nothing_says_which_it_is(store: Store, tmp_path: Path) -> None:
    skew = Skewed(store, counted, private=("k",))
    for seed in (1, 2, 3):
        skew.land(skewed(8_000, seed=seed))
        plan = skew.run(tmp_path if seed == 3 else None)
    why = there(ranges(plan))
    assert {split.key for split in why.partitions} == {MASK}
    assert HOT.encode() not in encode(plan)
    assert HOT not in stage_reason(plan.stages[0])
    pages = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert pages
    assert not [path for path in pages if f">{HOT}<".encode() in path.read_bytes()]
    assert skew.rows() == skew.direct(COUNTED)


def test_a_batch_without_a_hot_key_is_planned_as_without_the_setting(store: Store) -> None:
    skew = Skewed(store, counted)
    skew.land(skewed(5_000, seed=1, hot=0.0, others=10_000_000))
    skew.run()
    skew.land(skewed(5_000, seed=2, hot=0.0, others=10_000_000))
    split, left = (preview(skew.pipeline, store, skew.settings(hot_keys)).plan for hot_keys in ("split", "leave"))
    assert split is not None
    assert left is not None
    assert encode(split) == encode(left)


@pytest.mark.parametrize("scheme", ["tasks(3)", "tasks(20)", "elastic(3)"])
def test_any_number_of_tasks_can_have_hot_keys_split(scheme: str, store: Store) -> None:
    skew = Skewed(store, counted)
    for seed in (1, 2):
        skew.land(skewed(8_000, seed=seed))
        plan = skew.run(None, "split", scheme)
    assert ranges(plan) is not None
    assert skew.rows() == skew.direct(COUNTED)
