"""Hot keys: found while records are read, named with what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.reader import Batch
from partitioning.cosets import assign
from partitioning.hashes import placement_hash
from partitioning.model.graph import Op
from partitioning.model.order import Order, OrderedStream
from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat, Placement
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import HeavyKey
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedPartition, StreamInput
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.model.streams import Column, InputFile, NullKeys, Stream
from partitioning.sizing.hotkeys import COMBINE, ISOLATE, NOTHING, HotKey, hot_keys
from partitioning.values import replace
from spark_jobs.engine.intake import Proved
from tests.examples import examples
from tests.plans import plan_of, tails, tails_found

STAGE = "flights+planes"
TAILS = [f"N{number}" for number in range(2000)]


def of_task(task: int, tasks: int = 4) -> list[str]:
    return [tail for tail in TAILS if placement_hash(tail) % tasks == task]


def plan(op: Op = Op.JOIN, *, moved: bool = False, hash: str = MURMUR2) -> Plan:
    """The plan of 4 tasks, with another step, or reading its keys from an exchange."""
    joining = plan_of(tails(), tails_found())
    (stage,) = joining.stages
    inputs: tuple[Input, ...] = tuple(
        replace(read, placement=replace(read.placement, hash=hash)) for read in stage.streams
    )
    if moved:
        inputs = tuple(ExchangeInput(read.name, read.step, read.placement) for read in inputs)
    steps = tuple(replace(step, op=op) if step.keyed else step for step in stage.steps)
    return replace(joining, stages=(replace(stage, inputs=inputs, steps=steps),))


def figures(taken: list[int], *keys: tuple[str, int]) -> Statistics:
    return Statistics(
        0,
        tasks={TaskRef(STAGE, task): TaskFigures(10 * count, 1, 1.0, count) for task, count in enumerate(taken)},
        keys=tuple(KeyFigures(TaskRef(STAGE, placement_hash(key) % 4), key, {"flights": n}) for key, n in keys),
    )


def one(made: Plan, statistics: Statistics, max_tasks: int = 1000) -> HotKey:
    (found,) = hot_keys(made, statistics, max_tasks)
    return found


def test_a_key_below_half_of_a_mean_task_is_not_hot() -> None:
    (key, *_) = of_task(2)
    assert hot_keys(plan(), figures([100, 100, 100, 100], (key, 49))) == ()
    assert one(plan(), figures([100, 100, 100, 100], (key, 50))).key == key


def test_a_hot_key_has_its_share_of_its_task_and_of_a_mean_one() -> None:
    (key, *_) = of_task(1)
    found = one(plan(), figures([100, 400, 100, 200], (key, 300)))
    assert (found.stage, found.task, found.records) == (STAGE, 1, 300)
    assert (found.of_task, found.of_mean) == (Fraction(3, 4), Fraction(3, 2))


def test_a_hot_key_is_isolated_by_the_fewest_tasks_that_leave_little_beside_it() -> None:
    (key, *_) = of_task(1)
    # 200 others share with it; a quarter of its own 300 are allowed: so a third of them.
    found = one(plan(), figures([100, 500, 100, 100], (key, 300)))
    assert (found.remedy, found.scheme) == (ISOLATE, tasks_scheme(12))
    assert found.why == "in one of 12 tasks it shares with about 67 records instead of 200"


def test_hot_keys_of_one_task_are_parted_from_each_other() -> None:
    first, second = next(
        (a, b) for a in of_task(1) for b in of_task(1) if placement_hash(a) % 8 == placement_hash(b) % 8 and a != b
    )
    made, many = plan(), figures([100, 500, 100, 100], (first, 200), (second, 200))
    for found in hot_keys(made, many):
        assert found.scheme is not None
        assert found.scheme.number is not None
        assert found.scheme.number > 8
        assert placement_hash(first) % found.scheme.number != placement_hash(second) % found.scheme.number
    assert [found.remedy for found in hot_keys(made, many, max_tasks=8)] == [NOTHING, NOTHING]


def test_a_key_that_has_its_task_to_itself_needs_no_more_tasks() -> None:
    (key, *_) = of_task(1)
    found = one(plan(), figures([100, 500, 100, 100], (key, 480)))
    assert (found.remedy, found.scheme) == (NOTHING, None)
    assert "its task holds little else" in found.why


def test_a_key_whose_task_is_no_heavier_than_others_needs_nothing() -> None:
    (key, *_) = of_task(1)
    found = one(plan(), figures([400, 500, 400, 400], (key, 300)))
    assert (found.remedy, found.why) == (NOTHING, "its task has hardly more records than a mean one")


def test_behind_an_exchange_an_aggregated_key_is_combined_before_it_moves() -> None:
    (key, *_) = of_task(1)
    hot = figures([100, 500, 100, 100], (key, 300))
    assert one(plan(Op.AGGREGATE, moved=True), hot).remedy == COMBINE
    assert one(plan(Op.JOIN, moved=True), hot).remedy == ISOLATE
    assert one(plan(Op.AGGREGATE), hot).remedy == ISOLATE


def test_an_opaque_placement_cannot_part_a_key_from_others() -> None:
    (key, *_) = of_task(1)
    found = one(plan(hash=OPAQUE), figures([100, 500, 100, 100], (key, 300)))
    assert (found.remedy, found.scheme) == (NOTHING, None)
    assert OPAQUE in found.why


def test_the_heaviest_come_first_and_records_left_to_others_do_not_count() -> None:
    a, b = of_task(1)[0], of_task(3)[0]
    found = hot_keys(plan(), figures([100, 400, 100, 600], (a, 300), (b, 500)))
    assert [each.key for each in found] == [b, a]
    assert found[0].of_task == Fraction(5, 6)


def test_without_figures_or_keyed_steps_there_are_no_hot_keys() -> None:
    (key, *_) = of_task(1)
    made = plan()
    (stage,) = made.stages
    free = replace(made, stages=(replace(stage, steps=tuple(replace(step, keyed=False) for step in stage.steps)),))
    assert hot_keys(free, figures([100, 400, 100, 100], (key, 300))) == ()
    assert hot_keys(made, Statistics(0)) == ()


FILE = InputFile("s3://landing/topics/views/partition=0/views+0+0000000000.parquet", 1, "etag", 0, 100_000)


def inspected(keys: Sequence[str | None], tasks: int = 1, task: int = 0, batch: int = 1000) -> tuple[HeavyKey, ...]:
    """The heavy keys that one of so many tasks finds among these records, of which it reads a batch at a time."""
    planned = PlannedPartition(0, 0, 0, 0, len(keys), 1, (FILE,))
    ordered = OrderedStream(
        StreamInput("views", Placement("k", KeyFormat.STRING, MURMUR2, 1), 1, NullKeys.DROP),
        Stream("views", "s3://landing/topics", "k", 1, null_keys=NullKeys.DROP),
        (Column("k", "VARCHAR"), Column("_offset", "BIGINT")),
        (planned,),
    )
    dealt = assign([("views", 1)], tasks_scheme(tasks)).tasks
    order = Order(
        "sha256:plan", "p", 0, 0, "s3://test/store", "views", tasks, dealt[task], (ordered,), (), (), (), key_sample=1
    )
    inspection = Proved(order, ordered, planned)
    for start in range(0, len(keys), batch):
        read = pa.array(keys[start : start + batch], pa.string())
        offsets = pa.array(range(start, start + len(read)), pa.int64())
        records = pa.record_batch({"k": read, "_offset": offsets})
        inspection.rows(Batch(0, FILE.start, FILE.end, FILE.path, records))
    return inspection.receipt().heavy


def test_a_key_with_a_tenth_of_the_records_is_found_among_many() -> None:
    keys = [TAILS[0] if n % 10 == 0 else TAILS[1 + n % 1999] for n in range(20_000)]
    (heavy,) = inspected(keys)
    assert heavy.key == TAILS[0]
    assert 1900 <= heavy.records <= keys.count(TAILS[0])


def test_a_key_that_is_heavy_only_in_the_end_is_found() -> None:
    keys = [*TAILS, *TAILS, *["late"] * 2000]
    (heavy,) = inspected(keys)
    assert heavy.key == "late"
    assert 1500 < heavy.records <= 2000


def test_a_key_that_has_a_seat_is_counted_where_it_is_rare_too() -> None:
    quiet = [*TAILS[:499], "often"]
    loud = ["often" if n % 5 == 0 else TAILS[n] for n in range(2000)]
    (heavy,) = inspected([*quiet, *loud, *quiet, *quiet], batch=500)
    assert heavy.key == "often"
    assert 400 < heavy.records <= 403


def test_keys_that_are_all_alike_are_not_heavy() -> None:
    assert inspected(TAILS * 5) == ()
    assert inspected(["few"] * 99) == ()


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.sampled_from([None, *TAILS[:12]]), min_size=0, max_size=1500), st.integers(1, 400))
def test_a_heavy_key_never_has_more_records_than_it_had(keys: list[str | None], batch: int) -> None:
    counts = Counter(key for key in keys if key is not None)
    heavy = inspected(keys, batch=batch)
    assert all(each.records <= counts[each.key] for each in heavy)
    assert [each.records for each in heavy] == sorted((each.records for each in heavy), reverse=True)
    for key, count in counts.items():
        if count >= 100 and 2 * count > len(keys):
            assert key in {each.key for each in heavy} or 2 * count - len(keys) < 100


def test_only_what_a_task_takes_counts() -> None:
    keys = [TAILS[0]] * 500 + TAILS
    owner = placement_hash(TAILS[0]) % 3
    found = [inspected(keys, 3, task) for task in range(3)]
    assert [bool(heavy) for heavy in found] == [task == owner for task in range(3)]
    assert found[owner] == (HeavyKey(TAILS[0], 501),)
