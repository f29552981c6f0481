"""The check of a whole plan: what a wrong partitioner could do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.placement import JAVA, MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Plan
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Residues, Task
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.checked import said, with_stage
from tests.plans import arrived, plan_of, tails, tails_found


@pytest.fixture
def plan() -> Plan:
    """Four tasks, no filter: task t reads flights t, t+4, t+8 and planes t, t+4."""
    return plan_of(tails(), tails_found())


@pytest.fixture
def filtered() -> Plan:
    """Twelve tasks, planes filtered by h mod 12."""
    return plan_of(tails(), tails_found(), scheme="tasks(12)")


def with_tasks(plan: Plan, change: Callable[[list[Task]], list[Task]]) -> Plan:
    (stage,) = plan.stages
    return replace(plan, stages=(replace(stage, tasks=tuple(change(list(stage.tasks)))),))


def with_task(plan: Plan, number: int, **changes: object) -> Plan:
    return with_tasks(plan, lambda tasks: [replace(t, **changes) if t.task == number else t for t in tasks])


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(1)", "tasks(3)", "tasks(5)", "elastic(3)", "tasks(24)"])
def test_what_the_schemes_make_is_sound(scheme: str) -> None:
    plan = plan_of(tails(), tails_found(), scheme=scheme)
    assert check_plan(plan) is plan


def test_a_partition_that_no_task_reads_is_found(plan: Plan) -> None:
    broken = with_task(plan, 2, reads={"flights": (2, 6), "planes": (2, 6)})
    assert said(broken).splitlines() == [
        "flights-10, stage flights+planes: its records do not reach exactly one task each (tasks that read it: none)",
        "stage flights+planes: records without a key in flights 10 are not exactly one task's",
    ]


def test_a_partition_that_two_tasks_read_whole_is_found(plan: Plan) -> None:
    broken = with_task(plan, 0, reads={"flights": (0, 1, 4, 8), "planes": (0, 4)})
    assert (
        "flights-1, stage flights+planes: its records do not reach exactly one task each (tasks that read it: 0, 1)"
        in said(broken)
    )


def test_a_residue_that_reaches_no_task_is_found(filtered: Plan) -> None:
    broken = with_task(filtered, 9, reads={"flights": (9,)}, filters={})
    assert (
        "planes-1, stage flights+planes: its records do not reach exactly one task each (tasks that read it: 1, 5)"
        in said(broken)
    )


def test_a_filter_that_is_missing_is_found(filtered: Plan) -> None:
    assert "planes-1, stage flights+planes: its records do not reach exactly one task each" in said(
        with_task(filtered, 9, filters={})
    )


def test_a_filter_by_another_modulus_is_found(filtered: Plan) -> None:
    assert "planes-1, stage flights+planes: its records" in said(
        with_task(filtered, 9, filters={"planes": Residues(24, (9,))})
    )


def test_tasks_that_swap_a_stream_are_found_because_keys_do_not_meet(plan: Plan) -> None:
    zero, one = {"flights": (0, 4, 8), "planes": (1, 5)}, {"flights": (1, 5, 9), "planes": (0, 4)}
    swapped = with_task(with_task(plan, 0, reads=zero, keyless=zero), 1, reads=one, keyless=one)
    assert said(swapped).splitlines() == [
        "stage flights+planes: task 0 takes keys of planes that belong to other tasks",
        "stage flights+planes: task 1 takes keys of planes that belong to other tasks",
    ]


def test_a_missing_task_is_found_in_tasks_and_groups(plan: Plan) -> None:
    found = said(with_tasks(plan, lambda tasks: tasks[:3]))
    assert "keys with h(key) mod 4 = 3 are not exactly one task's" in found
    assert "tasks and groups do not agree on flights+planes/3" in found


def test_tasks_out_of_order_are_found(plan: Plan) -> None:
    assert "tasks are not numbered" in said(with_tasks(plan, lambda tasks: tasks[::-1]))


def test_a_task_in_two_groups_is_found(plan: Plan) -> None:
    first, second = plan.groups
    doubled = replace(plan, groups=(first, replace(second, tasks=second.tasks + first.tasks[:1])))
    assert said(doubled) == f"batch 0: tasks are in two groups: {first.tasks[0]}"


def test_a_missing_partition_and_a_range_that_is_none_are_found(plan: Plan) -> None:
    flights, planes = plan.streams
    first, *others = flights.partitions
    short = replace(plan, streams=(replace(flights, partitions=tuple(others)), planes))
    assert "stream 'flights': the plan does not hold every partition once, in order" in said(short)
    backward = replace(flights, partitions=(replace(first, start=9, end=3), *others))
    assert said(replace(plan, streams=(backward, planes))) == "flights-0: [9,3) is no range of offsets"


def test_a_stream_in_no_stage_is_found(plan: Plan) -> None:
    extra = replace(plan.streams[0], declared=replace(plan.streams[0].declared, name="extra"))
    assert said(replace(plan, streams=(*plan.streams, extra))) == "batch 0: streams are in no stage: extra"


def test_records_without_a_key_must_have_the_task_that_was_declared() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("a", key="tailnum", partitions=2, null_keys="own task").filter("true").write("t")
    plan = plan_of(pipeline, [arrived("a", [10, 10])])
    assert "do not have one task of their own" in said(with_task(plan, 2, reads={"a": (0,)}))
    elsewhere = with_task(with_task(plan, 2, keyless={"a": (0,)}), 1, keyless={"a": (1,)})
    assert said(elsewhere) == "stage a: records without a key do not have one task of their own, as declared"


def keyless_in(plan: Plan, *numbers: tuple[int, ...]) -> Plan:
    """The tasks account for the records without a key in these partitions of flights, each in its turn."""
    tasks = enumerate(plan.stages[0].tasks)
    changes = [{**task.keyless, "flights": numbers[at]} if at < len(numbers) else task.keyless for at, task in tasks]
    return with_tasks(plan, lambda tasks: [replace(t, keyless=changes[t.task]) for t in tasks])


@pytest.mark.parametrize(
    ("numbers", "lost"),
    [
        ([(0, 4)], "8"),
        ([()], "0, 4, 8"),
        ([(0, 4, 8), (1, 5)], "9"),
        ([(1, 4, 8), (0, 5, 9)], "0, 1"),
        ([(0, 4, 8), (0, 1, 5, 9)], None),
    ],
    ids=["one left out", "all left out", "left out by another task", "not read by who has them", "not read besides"],
)
def test_records_without_a_key_that_are_no_tasks_are_found(
    plan: Plan, numbers: list[tuple[int, ...]], lost: str | None
) -> None:
    """What a task does not read it cannot account for, whatever it claims."""
    broken = keyless_in(plan, *numbers)
    if lost is None:
        assert check_plan(broken) is broken
    else:
        what = f"records without a key in flights {lost} are not exactly one task's"
        assert said(broken) == f"stage flights+planes: {what}"


def test_records_without_a_key_that_are_two_tasks_are_found(filtered: Plan) -> None:
    assert [dict(task.keyless).get("planes") for task in filtered.stages[0].tasks[:6]] == [
        (0, 4),
        (1, 5),
        (2, 6),
        (3, 7),
        None,
        None,
    ]
    doubled = with_task(filtered, 5, keyless={"flights": (5,), "planes": (1,)})
    what = "records without a key in planes 1 are not exactly one task's"
    assert said(doubled) == f"stage flights+planes: {what}"


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 8},
        {"null_keys": NullKeys.REFUSE},
        {"placement": Placement("tail", KeyFormat.STRING, MURMUR2, 12)},
        {"placement": Placement("tailnum", KeyFormat.LONG, MURMUR2, 12)},
        {"placement": Placement("tailnum", KeyFormat.STRING, JAVA, 12)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 5)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 24)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 0)},
    ],
    ids=["count", "null keys", "key", "key format", "hash", "no divisor", "a multiple", "nothing"],
)
def test_a_stream_that_is_read_otherwise_than_it_is_declared_is_found(plan: Plan, changes: dict[str, object]) -> None:
    (flights, planes) = plan.stages[0].inputs
    broken = with_stage(plan, 0, inputs=(replace(flights, **changes), planes))
    assert said(broken) == "stage flights+planes: it reads flights differently from its declaration"


def test_a_stream_that_lies_by_a_divisor_of_its_count_is_read_as_it_may_be(plan: Plan) -> None:
    flights, planes = plan.stages[0].inputs
    grown = replace(flights, placement=replace(flights.placement, partitions=4))
    assert check_plan(with_stage(plan, 0, inputs=(grown, planes)))
    shared = replace(flights, placement=replace(flights.placement, partitions=2))
    assert "task 0 takes keys of flights that belong to other tasks" in said(
        with_stage(plan, 0, inputs=(shared, planes))
    )


def test_what_is_read_as_a_stream_and_is_none_is_found(plan: Plan) -> None:
    flights, planes = plan.stages[0].inputs
    broken = with_stage(plan, 0, inputs=(replace(flights, name="trains"), planes))
    assert said(broken) == "stage flights+planes: it reads trains, which is no stream"


def test_a_keyed_stage_whose_tasks_own_nothing_is_found(plan: Plan) -> None:
    broken = with_tasks(plan, lambda tasks: [replace(task, owns=()) for task in tasks])
    assert "no task owns keys, but joined needs them together" in said(broken)


def test_a_partition_that_is_not_there_is_found(plan: Plan) -> None:
    found = said(with_task(plan, 0, reads={"flights": (0, 4, 8, 12), "planes": (0, 4)}))
    assert found == "stage flights+planes: task 0 reads flights-12, which is not there to be read"
