"""Hot keys of joins that several tasks share: which stages allow it, what the plan says, and what its check catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import How
from partitioning.documents.document import decode, encode
from partitioning.explain.reason_texts import stage_reason
from partitioning.explain.surprises import OneKey, surprises
from partitioning.hashes import placement_hash
from partitioning.model.graph import Join, Op, Step
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.reasons import OwnTasks
from partitioning.model.schemes import HotKeys
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.model.takes import Residues, Task, takes
from partitioning.planning.stages.bounds import most_tasks
from partitioning.planning.stages.hot_ranges import MOST_TASKS
from partitioning.planning.stages.own_tasks import MOST_KEYS
from partitioning.planning.stages.record_ranges import join_of
from partitioning.sizing.hotkeys import NOTHING, SPLIT, hot_keys, hot_own
from partitioning.values import replace
from tests.checked import expect_said, with_stage, with_task
from tests.plans import arrived, plan_of

SPLITTING = Settings(hot_keys=HotKeys.SPLIT)
OWN = Settings(hot_keys=HotKeys.OWN_TASK)
PARTITIONS = {"flights": 8, "planes": 4}
STAGE = "flights+planes"
Build = Callable[[Flow, Flow], Flow]
# So many records have the hot key in a batch, and so many others.
HOT, OTHERS = 40_000, 60_000


def joined(how: How) -> Build:
    return lambda flights, planes: flights.join(planes, "flights.dep_delay", how=how, name="joined")


LEFT = joined("left")


def pipeline_of(build: Build = LEFT, **declared: Any) -> Pipeline:
    pipeline = Pipeline("met", source="s3://landing/topics")
    flights, planes = (
        pipeline.stream(name, key="tailnum", partitions=count, **declared) for name, count in PARTITIONS.items()
    )
    build(flights, planes).to_stream().write("met")
    return pipeline


def figures(records: Mapping[str, int], key: str = "bot", tasks: int = 4) -> Statistics:
    """A batch in which a key had so many records in each stream, and the others so many, evenly in each task."""
    took = dict.fromkeys(range(tasks), OTHERS // tasks)
    home = placement_hash(key) % tasks
    took[home] += sum(records.values())
    return Statistics(
        0,
        tasks={TaskRef(STAGE, task): TaskFigures(count, 10 * count) for task, count in took.items()},
        keys=(KeyFigures(TaskRef(STAGE, home), key, records),),
    )


def planned(
    build: Build = LEFT,
    records: Mapping[str, int] = {"flights": HOT},
    settings: Settings = SPLITTING,
    published: Plan | None = None,
    ends: int = 1_000,
    statistics: Statistics | None = None,
    **declared: Any,
) -> Plan:
    found = [arrived(name, [(2 if published else 1) * ends] * count) for name, count in PARTITIONS.items()]
    known = statistics or figures(records)
    return plan_of(pipeline_of(build, **declared), found, settings=settings, statistics=known, published=published)


def shared(plan: Plan) -> list[tuple[str, str, int]]:
    """The keys that several tasks share, the stream in ranges, and how many tasks."""
    whys = [stage.why for stage in plan.stages]
    return [
        (own.key, own.ranged, own.tasks) for why in whys if isinstance(why, OwnTasks) for own in why.keys if own.ranged
    ]


# ---- what is planned


def test_tasks_share_a_hot_key_each_with_a_range_of_one_stream_and_all_of_the_other() -> None:
    plan = planned()
    (stage,) = plan.stages
    h = placement_hash("bot")
    assert shared(plan) == [("bot", "flights", 3)]
    *others, first, second, third = stage.tasks
    assert len(others) == 4
    for task in (first, second, third):
        assert (task.owns, task.reads) == ((h % stage.cosets,), {"flights": (h % 8,), "planes": (h % 4,)})
        assert task.filters == {name: Residues(stage.cosets, task.owns) for name in PARTITIONS}
    flights, planes = (
        [[(part.start, part.end) for part in plan.stream(name).read_by(task)] for task in (first, second, third)]
        for name in PARTITIONS
    )
    assert flights == [[(0, 333)], [(333, 666)], [(666, 1_000)]]
    assert planes == [[(0, 1_000)]] * 3
    # The others read what they do without the setting; steps are the same.
    (before,) = planned(settings=Settings()).stages
    assert [task.reads for task in others] == [task.reads for task in before.tasks]
    assert (stage.steps, stage.by_scheme) == (before.steps, before.cosets)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)", "tasks(8)", "elastic(2)", "tasks(12)"])
def test_each_record_of_one_side_has_one_task_those_of_the_other_all_that_share_it(scheme: str) -> None:
    plan = planned(settings=Settings.parse(scheme=scheme, base=SPLITTING))
    (stage,) = plan.stages
    (numbers,) = stage.shares
    residue = placement_hash("bot") % stage.cosets
    for key in (*(f"N{number}" for number in range(600)), "bot"):
        h = placement_hash(key)
        for offset in (0, 500, 999):
            on_left, on_right = (
                {task.task for task in stage.tasks if takes(task, name, h % count, h, offset)}
                for name, count in PARTITIONS.items()
            )
            assert len(on_left) == 1
            assert on_right == (set(numbers) if h % stage.cosets == residue else on_left)
            assert on_left <= on_right


def test_the_plan_says_why_and_is_read_as_it_was_stored() -> None:
    plan = planned()
    (stage,) = plan.stages
    assert stage_reason(stage) == (
        "gcd(8, 4) = 4; 'bot' has tasks 4 to 6 for itself, each a range of flights and a copy of the other sides, "
        "as it has 40 % of the records; flights and planes filtered by h(key) mod 128; default where keys must meet"
    )
    assert decode(Plan, encode(plan), "a plan") == plan
    # The tasks follow from the reason.
    assert encode(plan).count(b'"exceptions":{}') == 1


def test_a_plan_in_which_no_key_is_split_has_nothing_that_plans_of_before_have_not() -> None:
    stored = encode(planned(settings=OWN))
    assert b'"keys":[{' in stored
    assert not any(f'"{field}":'.encode() in stored for field in ("ranged", "together"))
    assert decode(Plan, stored, "a plan") == planned(settings=OWN)


@pytest.mark.parametrize(
    ("build", "records", "ranged"),
    [
        (joined("inner"), {"flights": HOT}, "flights"),
        (joined("inner"), {"planes": HOT}, "planes"),
        (LEFT, {"flights": HOT, "planes": 600}, "flights"),
        (
            lambda a, b: a.filter("dep_delay > 0").join(b.select("tailnum, dep_delay"), "1 AS n"),
            {"flights": HOT},
            "flights",
        ),
        (lambda a, b: a.join(b.aggregate("count(*) AS n"), "1 AS n", how="left"), {"flights": HOT}, "flights"),
        (lambda a, b: a.join(b, "1 AS n").join(b, "2 AS n", how="left"), {"flights": HOT}, "flights"),
        (lambda a, b: b.merge(a.join(b, "1 AS n")).filter("n > 1"), {"flights": 0}, ""),
    ],
    ids=["inner", "the other side", "left", "filtered", "aggregated beside", "two joins", "no hot key"],
)
def test_joins_whose_rows_come_of_one_record_are_split(build: Build, records: Mapping[str, int], ranged: str) -> None:
    assert [name for _, name, _ in shared(planned(build, records))] == ([ranged] if ranged else [])


def aggregated(flights: Flow, planes: Flow) -> Flow:
    return flights.join(planes, "flights.dep_delay", name="joined").aggregate("count(*) AS n", name="counted")


def kept(flights: Flow, planes: Flow) -> Flow:
    return flights.join(planes.latest("dep_delay", name="newest"), "flights.dep_delay", name="joined")


def in_time(flights: Flow, planes: Flow) -> Flow:
    times = ("to_timestamp(flights.dep_delay)", "to_timestamp(planes.dep_delay)")
    return flights.join_within(planes, "1 AS n", times=times, within=timedelta(hours=1), name="near")


def also_written(flights: Flow, planes: Flow) -> Flow:
    planes.filter("dep_delay > 0", name="late").to_stream().write("late")
    return flights.join(planes, "flights.dep_delay", name="joined")


def with_itself(flights: Flow, planes: Flow) -> Flow:
    late = flights.filter("dep_delay > 0", name="late")
    return flights.join([late, planes], "flights.dep_delay", name="joined")


def united(flights: Flow, planes: Flow) -> Flow:
    return flights.join(planes, "flights.dep_delay", name="joined").merge(planes, name="all")


@pytest.mark.parametrize(
    ("build", "records", "together"),
    [
        (joined("full"), {"flights": HOT}, "joined"),
        (LEFT, {"planes": HOT}, "joined"),
        (aggregated, {"flights": HOT}, "counted"),
        (kept, {"flights": HOT}, "newest"),
        (in_time, {"flights": HOT}, "near.flights"),
        (also_written, {"flights": HOT}, "late"),
        (with_itself, {"flights": HOT}, "joined"),
        (united, {"flights": HOT}, "all"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_where_a_step_needs_the_records_together_the_key_has_one_task_and_the_plan_names_the_step(
    build: Build, records: Mapping[str, int], together: str
) -> None:
    plan = planned(build, records)
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert (stage.why.together, [own.tasks for own in stage.why.keys]) == (together, [1])
    assert f"; {together} keeps the records of a key in one task;" in stage_reason(stage)
    (alone,) = planned(build, records, OWN).stages
    assert (stage.tasks, stage.cosets) == (alone.tasks, alone.cosets)


def test_a_stream_that_sets_records_aside_is_not_copied_and_a_table_is_not_read_in_ranges() -> None:
    plan = planned(bad_records="set aside")
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert stage.why.together == "planes"
    pipeline = Pipeline("met", source="s3://landing/topics")
    flights, planes = (pipeline.table(name, key="tailnum", partitions=count) for name, count in PARTITIONS.items())
    LEFT(flights, planes).to_stream().write("met")
    found = [arrived(name, [1_000] * count) for name, count in PARTITIONS.items()]
    (stage,) = plan_of(pipeline, found, settings=SPLITTING, statistics=figures({"flights": HOT})).stages
    assert isinstance(stage.why, OwnTasks)
    assert stage.why.together == "flights"


def test_keys_that_need_no_more_have_one_task_and_no_task_an_empty_range() -> None:
    """Those that are no heavier than a task is, and those of which the other side has nearly as much."""
    for records in ({"flights": 18_000}, {"flights": HOT, "planes": 8_000}):
        (stage,) = planned(records=records).stages
        (alone,) = planned(records=records, settings=OWN).stages
        assert (stage.tasks, stage.why) == (alone.tasks, alone.why)
    assert shared(planned(ends=2)) == [("bot", "flights", 2)]
    assert shared(planned(ends=1)) == []
    # So many as have a quarter of what a mean task has.
    everything = replace(figures({"flights": HOT}), tasks={TaskRef(STAGE, 0): TaskFigures(HOT, 1)})
    assert shared(planned(statistics=everything)) == [("bot", "flights", 16)]


# ---- hysteresis


def test_a_key_is_shared_from_five_quarters_of_a_task_on_and_until_eleven_tenths() -> None:
    def heavy(of_task: float) -> dict[str, int]:
        return {"flights": round(OTHERS / 4 * of_task)}

    begun = planned(records=heavy(1.26))
    assert shared(begun) == [("bot", "flights", 2)]
    assert shared(planned(records=heavy(1.24))) == []
    assert shared(planned(records=heavy(1.11), published=begun)) == [("bot", "flights", 2)]
    assert shared(planned(records=heavy(1.09), published=begun)) == []


# ---- what joins keep


@pytest.mark.parametrize("how", list(Join))
def test_what_a_join_keeps_is_read_from_its_sql(how: Join) -> None:
    columns = """'"x", 1 FROM "a" AS "a" FULL JOIN "b"' AS odd, flights.dep_delay"""

    def made(flights: Flow, planes: Flow) -> Flow:
        return flights.join(planes, columns, how=how, name="joined")

    (step,) = pipeline_of(made).steps
    assert join_of(step) is how
    assert join_of(replace(step, sql=step.sql.replace("JOIN", "ANTI JOIN"))) is None


def test_what_is_no_join_of_a_flow_says_nothing_of_what_it_keeps() -> None:
    assert join_of(Step("j", Op.JOIN, ("a", "b"), "SELECT 1", ("1",), "k")) is None


# ---- what it costs, and what is laid out for it


def test_what_a_split_saves_and_costs_is_said_and_copies_make_no_key_heavier() -> None:
    (key,) = hot_own(planned())
    assert (key.key, key.task, key.tasks) == ("bot", 4, 3)
    # 100 thousand records in 4 tasks, the key in one of them; then 15 thousand in the longest.
    assert round(float(key.longest), 2) == round(15_000 / 55_000, 2)
    # A partition of flights once, that of planes three times.
    assert key.reads_again == 10 * (1_000 + 3 * 1_000)
    begun = planned(records={"flights": 50_000, "planes": 2_000})
    ((_, _, tasks),) = shared(begun)
    took = {task: TaskFigures(OTHERS // 4, 1) for task in (TaskRef(STAGE, number) for number in range(4))}
    took |= {TaskRef(STAGE, 4 + number): TaskFigures(50_000 // tasks + 2_000, 1) for number in range(tasks)}
    keys = (KeyFigures(TaskRef(STAGE, 4), "bot", {"flights": 50_000, "planes": 2_000}),)
    assert shared(planned(published=begun, statistics=Statistics(0, tasks=took, keys=keys))) == shared(begun)


def test_a_hot_key_of_a_join_is_to_be_split_and_needs_nothing_once_it_is() -> None:
    (key,) = hot_keys(planned(settings=Settings()), figures({"flights": HOT}))
    assert key.remedy == SPLIT
    plan = planned()
    took = {TaskRef(STAGE, number): TaskFigures(15_000 if number < 4 else HOT // 3, 1) for number in range(7)}
    keys = (KeyFigures(TaskRef(STAGE, 4), "bot", {"flights": HOT}),)
    (key,) = hot_keys(plan, Statistics(0, tasks=took, keys=keys))
    assert (key.remedy, key.why) == (NOTHING, "several tasks share it already")
    assert 0.99 < key.of_task <= 1.01
    (key,) = hot_keys(planned(joined("full"), settings=Settings()), figures({"flights": HOT}))
    assert key.remedy != SPLIT


def test_a_key_that_is_nearly_all_of_a_stream_does_not_surprise_where_it_is_shared() -> None:
    last = replace(figures({"flights": HOT}), records={"flights": HOT})
    for settings, found in ((Settings(), ["bot"]), (SPLITTING, [])):
        plan = planned(settings=settings)
        assert [each.key for each in surprises(plan, last) if isinstance(each, OneKey)] == found


def test_a_dag_has_room_for_it() -> None:
    assert most_tasks(pipeline_of(), SPLITTING) == most_tasks(pipeline_of()) + MOST_KEYS * MOST_TASKS


# ---- what the check of a plan catches, whoever made it


def with_tasks(plan: Plan, tasks: Sequence[Task]) -> Plan:
    return with_stage(plan, 0, tasks=tuple(replace(task, task=number) for number, task in enumerate(tasks)))


def wrong_plans() -> Mapping[str, Plan]:
    plan = planned()
    (stage,) = plan.stages
    why, (first, second, third) = stage.why, stage.tasks[4:]
    assert isinstance(why, OwnTasks)
    (bot,) = why.keys
    beside = placement_hash("bot") % 4
    elsewhere = dict(first.reads) | {"planes": ((first.reads["planes"][0] + 1) % 4,)}
    other = {name: Residues(128, (7,)) for name in PARTITIONS}

    def saying(**changes: Any) -> Plan:
        return with_stage(plan, 0, why=replace(why, keys=(replace(bot, **changes),)))

    return {
        "a range of nobody": with_task(plan, 5, offsets=Span(400, 666)),
        "offsets of two": with_task(plan, 5, offsets=Span(300, 666)),
        "a range that ends too early": with_task(plan, 6, offsets=Span(666, 900)),
        "a range of records that are not there": with_task(plan, 6, offsets=Span(666, 1_100)),
        "all of it": with_task(plan, 4, offsets=UNSET),
        "the same range twice": with_task(plan, 5, offsets=first.offsets),
        "ranges in another order": with_tasks(plan, [*stage.tasks[:4], second, first, third]),
        "a task fewer": with_tasks(plan, stage.tasks[:6]),
        "no copy of the other side": with_task(plan, 5, reads={"flights": first.reads["flights"]}),
        "a copy of another partition": with_task(plan, 5, reads=elsewhere),
        "all keys of a partition": with_task(plan, 6, filters={}),
        "another key": with_task(plan, 6, owns=(7,), filters=other),
        "a range of the other side": with_task(plan, 6, ranged="planes"),
        "ranges of a stream that the plan does not say": saying(ranged="planes"),
        "ranges of no stream": saying(ranged="joined"),
        "one task by the plan": saying(tasks=1),
        "more tasks by the plan": saying(tasks=4),
        "none by the plan": saying(tasks=0),
        "a range for a task of other keys": with_task(plan, beside, offsets=Span(0, 500)),
        "the key in the task of the others too": with_task(plan, beside, filters={}, owns=tuple(range(beside, 128, 4))),
        "a full join": with_stage(plan, 0, steps=planned(joined("full"), settings=OWN).stages[0].steps),
    }


def test_a_plan_with_a_wrong_split_is_refused() -> None:
    wrong = wrong_plans()
    assert len({encode(plan) for plan in wrong.values()}) == len(wrong)
    expect_said("wrong_splits.txt", wrong)
