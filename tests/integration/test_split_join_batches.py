"""A key with 40 % of the records in a join, shared by several tasks: from plan to published table, against all rows at
once."""

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
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import How, NullKey
from partitioning.documents.document import encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from partitioning.model.reasons import OwnTasks
from partitioning.model.schemes import HotKeys
from tests.asked_of_duckdb import direct
from tests.backfilled import run_again
from tests.hot import HOT, Met, skewed
from tests.landed import land_file, land_table
from tests.running import next_batch, run_and_publish, run_groups
from tests.there import there

SPLIT = Settings(hot_keys=HotKeys.SPLIT)


def shared(plan: Plan) -> dict[str, int]:
    """How many tasks share each key, of those that have tasks of their own."""
    whys = [stage.why for stage in plan.stages]
    return {own.key: own.tasks for why in whys if isinstance(why, OwnTasks) for own in why.keys}


def longest(store: Store, plan: Plan) -> Fraction:
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
    assert longest(store, whole) > 3
    assert longest(store, plan) <= Fraction(13, 10)
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


def test_a_batch_without_a_hot_key_is_planned_as_without_the_setting(store: Store) -> None:
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
