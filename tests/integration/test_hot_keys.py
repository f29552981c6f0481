"""A key with 40 % of the records: split by ranges, given a task of its own, or shared by tasks of a join."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches import steps
from coset.batches.attempt import Attempt
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.history import statistics
from coset.batches.planning import preview
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import How, NullKey
from partitioning.documents.document import encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.explain.reason_texts import stage_reason
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from partitioning.model.private import MASK
from partitioning.model.reasons import HotRanges, OwnTasks
from partitioning.model.schemes import HotKeys
from tests.asked_of_duckdb import direct
from tests.backfilled import run_again
from tests.hot import HOT, Met, Skewed, counted, counted_on, skewed
from tests.landed import land_file, land_table
from tests.running import next_batch, run_and_publish, run_groups
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


OWN = Settings(hot_keys=HotKeys.OWN_TASK)
TURNS = (
    ("own task", ""),
    ("own task", ""),
    ("leave", "tasks(5)"),
    ("own task", "elastic(2)"),
    ("own task", ""),
    ("split", ""),
)


def own(plan: Plan) -> list[str]:
    return [key.key for stage in plan.stages if isinstance(stage.why, OwnTasks) for key in stage.why.keys]


def newest(views: Flow) -> Flow:
    """The newest record of each key, kept by the step and in a table of its own."""
    latest = views.latest("v", name="newest")
    latest.write("current", mode="upsert")
    return latest


def test_a_full_join_gives_the_hot_key_a_task_of_its_own_and_the_same_rows(store: Store, tmp_path: Path) -> None:
    met = Met(store)
    met.land(1)
    assert own(met.run(None)) == []
    met.land(2)
    plan = met.run(tmp_path)
    assert own(plan) == [HOT]
    assert met.rows() == met.direct()
    # Its task has hardly anything else, and the others have what they had without it.
    found = there(statistics(Attempt.published(Ledger(store, "met"), plan)))
    taken = [figures.own for _, figures in sorted(found.tasks.items())]
    assert len(taken) == 5
    assert max(taken[:4]) < 1_000 < taken[4] < 1_800


def test_state_follows_its_keys_whether_they_have_own_tasks_or_not(store: Store) -> None:
    skew = Skewed(store, counted_on)
    for number, (hot_keys, scheme) in enumerate(TURNS):
        skew.land(skewed(4_000, seed=number))
        plan = skew.run(None, hot_keys, *([scheme] if scheme else []))
        assert (HOT in own(plan)) == (number > 0 and hot_keys == "own task")
    assert skew.newest("n, v") == skew.direct_of_all("SELECT k, count(*), sum(v) FROM views GROUP BY k")


@pytest.mark.long
def test_an_upserted_table_is_the_same_whether_keys_have_own_tasks_or_not(store: Store) -> None:
    skew = Skewed(store, newest)
    for number, (hot_keys, scheme) in enumerate(TURNS):
        made = skewed(4_000, seed=number)
        skew.land(made.set_column(1, "v", pa.array(range(4_000 * number, 4_000 * (number + 1)), pa.int64())))
        plan = skew.run(None, hot_keys, *([scheme] if scheme else []))
        assert (HOT in own(plan)) == (number > 0 and hot_keys == "own task")
    table = DeltaTable(f"{store.root}/tables/current").to_pyarrow_table().select(["k", "v"])
    rows = sorted(zip(*table.to_pydict().values(), strict=True))
    assert rows == skew.direct_of_all("SELECT k, max(v) FROM views GROUP BY k")


@pytest.mark.long
def test_a_backfill_gives_the_same_keys_a_task_of_their_own_and_the_same_rows(store: Store, tmp_path: Path) -> None:
    skew = Skewed(store, counted_on)
    for seed in (1, 2):
        skew.land(skewed(4_000, seed=seed))
        plan = skew.run(None, "own task")
    assert own(plan) == [HOT]
    backfill = run_again(skew.pipeline, store, Asked(0, 1, OWN), tmp_path)
    again = there(Ledger(store, backfill.name).plan(1))
    assert [stage.tasks for stage in again.stages] == [stage.tasks for stage in plan.stages]
    assert str(actions.comparison(store, backfill)).startswith("identical: ")


SPLIT = Settings(hot_keys=HotKeys.SPLIT)


def shared(plan: Plan) -> dict[str, int]:
    """How many tasks share each key, of those that have tasks of their own."""
    whys = [stage.why for stage in plan.stages]
    return {own.key: own.tasks for why in whys if isinstance(why, OwnTasks) for own in why.keys}


def longest_joined(store: Store, plan: Plan) -> Fraction:
    """What the task that takes most takes beside the mean task."""
    found = there(statistics(Attempt.published(Ledger(store, "met"), plan)))
    taken = [figures.own for figures in found.tasks.values()]
    return Fraction(max(taken) * len(taken), sum(taken))


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_join_splits_its_hot_key_and_its_rows_are_those_of_all_records_at_once(
    how: How, store: Store, tmp_path: Path
) -> None:
    met = Met(store, how, HotKeys.SPLIT)
    met.land(1, 24_000, others=0)
    whole = met.run(None, "tasks(8)")
    assert shared(whole) == {}
    met.land(2, 24_000, others=0)
    plan = met.run(tmp_path, "tasks(8)")
    assert shared(plan)[HOT] > 4
    assert longest_joined(store, whole) > 3
    assert longest_joined(store, plan) <= Fraction(13, 10)
    assert met.rows() == met.direct()


def test_a_full_join_leaves_its_hot_key_in_one_task_and_says_so(store: Store) -> None:
    met = Met(store, "full", HotKeys.SPLIT)
    for seed in (1, 2):
        met.land(seed)
        plan = met.run(None)
    assert shared(plan) == {HOT: 1}
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert stage.why.together == "joined"
    assert met.rows() == met.direct()


@pytest.mark.parametrize("scheme", ["tasks(3)", "tasks(6)", "elastic(3)"])
def test_any_number_of_tasks_can_have_hot_keys_of_joins_split(scheme: str, store: Store) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    for seed in (1, 2, 3):
        met.land(seed)
        plan = met.run(None, scheme)
    assert shared(plan)[HOT] > 1
    assert met.rows() == met.direct()


def test_a_second_attempt_splits_alike_whatever_is_asked_by_then(store: Store, tmp_path: Path) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    met.land(1)
    met.run(None)
    met.land(2)
    ref, plan = met.planned()
    run_groups(ref)
    met.hot_keys = HotKeys.LEAVE
    again = met.run(tmp_path)
    assert encode(again) == encode(plan)
    assert shared(again)[HOT] > 1
    assert met.rows() == met.direct()


def test_a_backfill_splits_alike_and_gives_the_same_rows(store: Store, tmp_path: Path) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    for seed in (1, 2):
        met.land(seed)
        plan = met.run(None)
    assert shared(plan)[HOT] > 1
    backfill = run_again(met.pipeline, store, Asked(0, 1, SPLIT), tmp_path)
    again = there(Ledger(store, backfill.name).plan(1))
    assert [stage.tasks for stage in again.stages] == [stage.tasks for stage in plan.stages]
    assert str(actions.comparison(store, backfill)).startswith("identical: ")


def test_a_batch_without_a_hot_key_in_a_join_is_planned_as_without_the_setting(store: Store) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    met.land(1)
    split, left = (
        preview(met.pipeline, store, Settings(hot_keys=hot_keys)).plan for hot_keys in (HotKeys.SPLIT, HotKeys.LEAVE)
    )
    assert split is not None
    assert left is not None
    assert encode(split) == encode(left)


def test_the_next_batch_counts_copies_once(store: Store) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    for seed in (1, 2):
        met.land(seed)
        plan = met.run(None)
    found = there(statistics(Attempt.published(Ledger(store, "met"), plan)))
    assert found.records["clicks"] == 1_001
    assert found.records["views"] == 4_000
    (key,) = found.keys
    assert (key.key, key.task.task) == (HOT, 4)
    assert 1_500 < key.total < 1_700
    assert steps.plan(met.pipeline, store.root, SPLIT)[0] is None


@pytest.mark.parametrize("null_keys", ["drop", "own task"])
def test_records_without_a_key_and_missing_offsets_are_counted_once(null_keys: NullKey, store: Store) -> None:
    """The tasks that share the key account for the records without one as well: its residue comes first."""
    source = f"{store.root}/topics"
    pipeline = Pipeline("met", source=source)
    views, clicks = (
        pipeline.stream(name, key="k", partitions=partitions, null_keys=null_keys, offsets="sparse(9)")
        for name, partitions in (("views", 8), ("clicks", 4))
    )
    views.join(clicks, "views.v AS v, clicks.v AS c", how="left", name="joined").write("met")
    hot = next(text for number in count() if placement_hash(text := f"key-{number}") % 128 < 4)
    rows: dict[str, list[tuple[str | None, int]]] = {
        "views": [(hot if number % 2 else f"N{number % 999}", number) for number in range(6_000)],
        "clicks": [(key, -number) for number, key in enumerate([hot, *(f"N{number}" for number in range(500))])],
    }
    for some in rows.values():
        some += [(None, 0)] * 40
    plans = []
    for batch in range(2):
        for name, partitions in (("views", 8), ("clicks", 4)):
            placed: dict[int, list[tuple[str | None, int]]] = {}
            for number, (key, value) in enumerate(rows[name]):
                placed.setdefault((number if key is None else placement_hash(key)) % partitions, []).append(
                    (key, value)
                )
            for partition, some in placed.items():
                table = pa.table({"k": [key for key, _ in some], "v": [value for _, value in some]})
                first = batch * 3 * len(some)
                offsets = [first + 3 * number for number in range(len(some))]
                land_file(table, name, source, partition, first, offsets=offsets)
        ref = next_batch(pipeline, store.root, SPLIT)
        run_and_publish(ref)
        plans.append(ref.load()[1])
    plan = plans[-1]
    assert shared(plan)[hot] > 1
    (stage,) = plan.stages
    (numbers,) = stage.shares
    keyless = [task.keyless for task in stage.tasks if task.task in numbers]
    assert all(set(each) == ({"views", "clicks"} if null_keys == "drop" else set()) for each in keyless)
    with_key = 2 * sum(key is not None for key, _ in rows["views"])
    table = DeltaTable(f"{store.root}/tables/met").to_pyarrow_table()
    assert table.num_rows == with_key + (80 if null_keys == "own task" else 0)


def test_what_moved_to_the_join_is_copied_and_what_is_made_of_it_moves_on(store: Store) -> None:
    source = f"{store.root}/topics"
    pipeline = Pipeline("met", source=source)
    views = pipeline.stream("views", key="k", partitions=8)
    people = pipeline.stream("people", key="id", partitions=3).rekey("k", name="by_k")
    known = views.join(people, "by_k.id AS id, views.v AS v", name="known")
    parts = known.partial("count(*) AS n, sum(v)::BIGINT AS v", by="id", name="parts")
    parts.combine("sum(n)::BIGINT AS n, sum(v)::BIGINT AS v", name="totals").write("met")
    rows: list[tuple[object, ...]] = []
    for seed in (1, 2):
        made = skewed(6_000, seed, others=300)
        keys = sorted({*made["k"].to_pylist(), "nobody"})
        land_table(made, "views", source, key="k", partitions=8)
        by_id = pa.table({"id": [f"id-{number % 7}" for number in range(len(keys))], "k": keys})
        land_table(by_id, "people", source, key="id", partitions=3)
        ref = next_batch(pipeline, store.root, Settings.parse(scheme="tasks(4)", base=SPLIT))
        run_and_publish(ref)
        rows += direct(
            "SELECT id, count(*), sum(v) FROM views JOIN people USING (k) GROUP BY id", views=made, people=by_id
        )
        plan = ref.load()[1]
    assert shared(plan)[HOT] > 1
    (stage,) = (stage for stage in plan.stages if stage.shares)
    assert [type(read).__name__ for read in stage.inputs] == ["StreamInput", "ExchangeInput"]
    table = DeltaTable(f"{store.root}/tables/met").to_pyarrow_table().select(["id", "n", "v"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == sorted(rows)
