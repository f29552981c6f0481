"""Hot keys: found while records are read, named with what helps, and given a task of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.reader import Batch
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.cosets import assign
from partitioning.documents.document import decode, encode
from partitioning.explain.reason_texts import stage_reason
from partitioning.hashes import placement_hash
from partitioning.model.graph import Op
from partitioning.model.order import Order, OrderedStream
from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat, Placement
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.private import MASK
from partitioning.model.reasons import GcdOf, OwnTasks
from partitioning.model.receipt import HeavyKey
from partitioning.model.schemes import HotKeys
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedPartition, StreamInput
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.model.streams import Column, InputFile, NullKeys, Stream
from partitioning.model.takes import Residues, takes
from partitioning.planning.stages.bounds import most_tasks, most_waves
from partitioning.planning.stages.own_tasks import MOST_KEYS
from partitioning.sizing.hotkeys import COMBINE, ISOLATE, NOTHING, HotKey, hot_keys
from partitioning.values import replace
from spark_jobs.engine.intake import Proved
from tests.checked import expect_said, with_stage, with_task
from tests.examples import examples
from tests.plans import arrived, plan_of, tails, tails_found

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


def test_a_hot_key_has_its_share_of_its_task_and_is_isolated_by_the_fewest_tasks() -> None:
    (key, *_) = of_task(1)
    found = one(plan(), figures([100, 400, 100, 200], (key, 300)))
    assert (found.stage, found.task, found.records) == (STAGE, 1, 300)
    assert (found.of_task, found.of_mean) == (Fraction(3, 4), Fraction(3, 2))
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


def test_a_key_alone_in_its_task_or_in_one_no_heavier_or_of_opaque_placement_needs_nothing() -> None:
    (key, *_) = of_task(1)
    found = one(plan(), figures([100, 500, 100, 100], (key, 480)))
    assert (found.remedy, found.scheme) == (NOTHING, None)
    assert "its task holds little else" in found.why
    found = one(plan(hash=OPAQUE), figures([100, 500, 100, 100], (key, 300)))
    assert (found.remedy, found.scheme) == (NOTHING, None)
    assert OPAQUE in found.why
    found = one(plan(), figures([400, 500, 400, 400], (key, 300)))
    assert (found.remedy, found.why) == (NOTHING, "its task has hardly more records than a mean one")


def test_behind_an_exchange_an_aggregated_key_is_combined_before_it_moves() -> None:
    (key, *_) = of_task(1)
    hot = figures([100, 500, 100, 100], (key, 300))
    assert one(plan(Op.AGGREGATE, moved=True), hot).remedy == COMBINE
    assert one(plan(Op.JOIN, moved=True), hot).remedy == ISOLATE
    assert one(plan(Op.AGGREGATE), hot).remedy == ISOLATE


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


def test_a_heavy_key_is_found_among_many_also_only_in_the_end_or_rare_in_parts() -> None:
    keys = [TAILS[0] if n % 10 == 0 else TAILS[1 + n % 1999] for n in range(20_000)]
    (heavy,) = inspected(keys)
    assert heavy.key == TAILS[0]
    assert 1900 <= heavy.records <= keys.count(TAILS[0])
    keys = [*TAILS, *TAILS, *["late"] * 2000]
    (heavy,) = inspected(keys)
    assert heavy.key == "late"
    assert 1500 < heavy.records <= 2000
    quiet = [*TAILS[:499], "often"]
    loud = ["often" if n % 5 == 0 else TAILS[n] for n in range(2000)]
    (heavy,) = inspected([*quiet, *loud, *quiet, *quiet], batch=500)
    assert heavy.key == "often"
    assert 400 < heavy.records <= 403


def test_only_heavy_keys_that_a_task_takes_count() -> None:
    assert inspected(TAILS * 5) == ()
    assert inspected(["few"] * 99) == ()
    keys = [TAILS[0]] * 500 + TAILS
    owner = placement_hash(TAILS[0]) % 3
    found = [inspected(keys, 3, task) for task in range(3)]
    assert [bool(heavy) for heavy in found] == [task == owner for task in range(3)]
    assert found[owner] == (HeavyKey(TAILS[0], 501),)


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


OWN = Settings(hot_keys=HotKeys.OWN_TASK)
PARTITIONS = {"flights": 8, "planes": 4}
Build = Callable[[Flow, Flow], Flow]


def joined(flights: Flow, planes: Flow) -> Flow:
    return flights.join(planes, "flights.dep_delay", how="full", name="joined")


def counted(flights: Flow, planes: Flow) -> Flow:
    return flights.cogroup("count(*) AS flights", (planes, "count(*) AS planes"), name="counted")


def pipeline_of(build: Build = joined, **declared: Any) -> Pipeline:
    pipeline = Pipeline("met", source="s3://landing/topics")
    flights, planes = (
        pipeline.stream(name, key="tailnum", partitions=count, **declared) for name, count in PARTITIONS.items()
    )
    build(flights, planes).to_stream().write("met")
    return pipeline


def figures_of(keys: Mapping[str, int], others: int = 40_000, stage: str = STAGE, tasks: int = 4) -> Statistics:
    """A batch in which these keys had so many records, and the others so many, evenly in each task."""
    took = dict.fromkeys(range(tasks), others // tasks)
    for key, records in keys.items():
        took[placement_hash(key) % tasks] += records
    return Statistics(
        0,
        tasks={TaskRef(stage, task): TaskFigures(records, 10 * records) for task, records in took.items()},
        keys=tuple(
            KeyFigures(TaskRef(stage, placement_hash(key) % tasks), key, {"flights": records})
            for key, records in keys.items()
        ),
    )


HOT = {"bot": 40_000}


def planned(
    build: Build = joined,
    keys: Mapping[str, int] = HOT,
    settings: Settings = OWN,
    published: Plan | None = None,
    **declared: Any,
) -> Plan:
    found = [arrived(name, [2_000 if published else 1_000] * count) for name, count in PARTITIONS.items()]
    made = pipeline_of(build, **declared)
    return plan_of(made, found, settings=settings, statistics=figures_of(keys), published=published)


def own(plan: Plan) -> list[str]:
    (stage,) = plan.stages
    return [each.key for each in stage.why.keys] if isinstance(stage.why, OwnTasks) else []


# ---- what is planned


def test_a_hot_key_has_a_task_for_itself_and_the_others_are_as_before() -> None:
    plan = planned()
    (stage,) = plan.stages
    h = placement_hash("bot")
    *others, hot = stage.tasks
    assert (len(others), hot.owns, stage.cosets) == (4, (h % stage.cosets,), 64)
    (before,) = planned(settings=Settings()).stages
    assert [task.reads for task in others] == [task.reads for task in before.tasks]
    # Only those that share the key's partitions look at hashes.
    assert [task.task for task in stage.tasks if task.filters] == [h % 4, 4]
    assert hot.reads == {"flights": (h % 8,), "planes": (h % 4,)}
    assert (stage.steps, stage.scheme, stage.by_scheme) == (before.steps, before.scheme, before.cosets)


def test_each_key_is_one_task_s_and_only_one_in_sixteen_others_of_its_coset_are_beside_the_hot_key() -> None:
    (stage,) = planned().stages
    h = placement_hash("bot")
    beside = []
    for key in (*(f"N{number}" for number in range(2_000)), "bot"):
        other = placement_hash(key)
        (task,) = {
            task.task
            for task in stage.tasks
            for read, count in PARTITIONS.items()
            if takes(task, read, other % count, other)
        }
        assert task == other % 4 or (task == 4 and other % 64 == h % 64)
        beside += [key] if task == 4 else []
    assert beside[-1] == "bot"
    assert len(beside) < 60


@pytest.mark.parametrize("scheme", ["tasks(3)", "tasks(8)", "elastic(2)", "cogroup"])
def test_any_scheme_can_have_own_tasks(scheme: str) -> None:
    (stage,) = planned(settings=Settings.parse(scheme=scheme, base=OWN)).stages
    (before,) = planned(settings=Settings.parse(scheme=scheme)).stages
    assert len(stage.tasks) == len(before.tasks) + 1
    assert [task.reads for task in stage.tasks[:-1]] == [task.reads for task in before.tasks]


def test_records_without_a_key_keep_their_own_task() -> None:
    (stage,) = planned(null_keys="own task").stages
    assert [task.null_keys for task in stage.tasks] == [False] * 5 + [True]


def test_the_plan_says_why_and_is_read_as_it_was_stored() -> None:
    plan = planned()
    (stage,) = plan.stages
    assert stage_reason(stage) == (
        "gcd(8, 4) = 4; 'bot' has task 4 for itself, as it has 50 % of the records; "
        "flights and planes filtered by h(key) mod 64; default where keys must meet"
    )
    assert decode(Plan, encode(plan), "a plan") == plan
    assert encode(plan).count(b'"exceptions":{}') == 1


def test_hot_keys_that_fall_together_are_parted() -> None:
    h = placement_hash("bot") % 64
    (other,) = [key for number in range(400) if placement_hash(key := f"N{number}") % 64 == h][:1]
    (stage,) = planned(keys={"bot": 30_000, other: 20_000}).stages
    assert [task.owns for task in stage.tasks[4:]] == [(placement_hash(key) % stage.cosets,) for key in ("bot", other)]
    assert stage.cosets > 64


def test_no_more_keys_have_tasks_than_would_double_them() -> None:
    keys = {f"N{number}": 40_000 - number for number in range(6)}
    assert own(planned(keys=keys)) == ["N0", "N1", "N2", "N3"]
    many = {f"N{number}": 40_000 - number for number in range(20)}
    (stage,) = planned(keys=many, settings=Settings.parse(scheme="tasks(16)", base=OWN)).stages
    assert len(stage.tasks) == 16 + MOST_KEYS


# ---- hysteresis


def test_a_key_keeps_its_task_and_number_down_to_half_of_what_gave_it_one() -> None:
    begun = planned(keys={"bot": 5_000})
    assert own(begun) == ["bot"]
    assert own(planned(keys={"bot": 4_900})) == []
    assert own(planned(keys={"bot": 2_500}, published=begun)) == ["bot"]
    assert own(planned(keys={"bot": 2_400}, published=begun)) == []
    begun = planned(keys={"bot": 10_000})
    assert own(planned(keys={"bot": 10_000, "N1": 30_000}, published=begun)) == ["bot", "N1"]
    assert own(planned(keys={"bot": 10_000, "N1": 30_000})) == ["N1", "bot"]


# ---- what is left as it is


def merged(flights: Flow, planes: Flow) -> Flow:
    return flights.merge(planes, name="all").filter("dep_delay > 0", name="late")


@pytest.mark.parametrize(
    ("keys", "declared"),
    [({}, {}), ({"bot": 900}, {}), ({MASK: 40_000}, {}), (HOT, {"hash": "opaque"})],
    ids=["no hot key", "few records", "a private key", "an opaque placement"],
)
def test_where_no_key_can_have_a_task_the_plan_is_as_without_the_setting(
    keys: Mapping[str, int], declared: Mapping[str, Any]
) -> None:
    assert encode(planned(keys=keys, **declared)) == encode(planned(keys=keys, settings=Settings(), **declared))


def test_a_partitioner_decides_by_itself() -> None:
    even = {STAGE: PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 2})}
    (stage,) = planned(settings=replace(OWN, partitioners=even)).stages
    assert (len(stage.tasks), stage.cosets) == (2, 4)


def test_a_stage_without_keyed_steps_or_with_one_task_is_left() -> None:
    for build, asked in ((merged, OWN), (joined, Settings.parse(scheme="tasks(1)", base=OWN))):
        without = replace(asked, hot_keys=HotKeys.LEAVE)
        assert encode(planned(build, settings=asked)) == encode(planned(build, settings=without))


def test_a_setting_says_it_and_a_dag_has_room_for_it() -> None:
    assert Settings.read('hot_keys = "own task"', "settings.toml") == OWN
    assert most_waves(pipeline_of(), OWN) == most_waves(pipeline_of())
    assert most_tasks(pipeline_of(), OWN) == most_tasks(pipeline_of()) + MOST_KEYS


# ---- what the check of a plan catches, whoever made it


def with_owner(plan: Plan, task: int, owns: Sequence[int]) -> Plan:
    (stage,) = plan.stages
    filters = {name: Residues(stage.cosets, tuple(owns)) for name in stage.tasks[task].filters}
    return with_task(plan, task, owns=tuple(owns), filters=filters)


def wrong_plans() -> Mapping[str, Plan]:
    plan = planned()
    (stage,) = plan.stages
    why = stage.why
    assert isinstance(why, OwnTasks)
    (bot,) = why.keys
    shared = placement_hash("bot") % 4
    hot, owner = stage.tasks[4], stage.tasks[shared]

    def saying(**changes: Any) -> Plan:
        return with_stage(plan, 0, why=replace(why, **changes))

    return {
        "a residue of nobody": with_owner(plan, shared, owner.owns[1:]),
        "the key's residue of two": with_owner(plan, shared, sorted((*owner.owns, *hot.owns))),
        "another residue for its own": with_owner(
            with_owner(plan, 4, owner.owns[:1]), shared, (*owner.owns[1:], *hot.owns)
        ),
        "a key of another residue": saying(keys=(replace(bot, key="N1"),)),
        "no key of its task": saying(keys=()),
        "another number of other tasks": saying(of=GcdOf((8, 4), 2)),
        "a partition that its task does not read": with_task(plan, 4, reads={"flights": hot.reads["flights"]}),
        "a task that takes all of its partition": with_task(plan, 4, filters={}),
    }


def test_a_plan_with_a_wrong_own_task_is_refused() -> None:
    expect_said("wrong_own_tasks.txt", wrong_plans())
