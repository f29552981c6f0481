"""The check of a whole plan: what a wrong partitioner could do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from partitioning.assignment import Residues, Task
from partitioning.checking import check
from partitioning.errors import Refused
from partitioning.pipeline import Pipeline
from partitioning.plan import Plan
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


def said(plan: Plan) -> str:
    with pytest.raises(Refused) as refusal:
        check(plan)
    return "\n".join(f"{finding.where}: {finding.what}" for finding in refusal.value.findings)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(1)", "tasks(3)", "tasks(5)", "elastic(3)", "tasks(24)"])
def test_what_the_schemes_make_is_sound(scheme: str) -> None:
    plan = plan_of(tails(), tails_found(), scheme=scheme)
    assert check(plan) is plan


def test_a_partition_that_no_task_reads_is_found(plan: Plan) -> None:
    broken = with_task(plan, 2, reads={"flights": (2, 6), "planes": (2, 6)})
    assert said(broken) == "flights-10: its records do not reach exactly one task each (tasks that read it: none)"


def test_a_partition_that_two_tasks_read_whole_is_found(plan: Plan) -> None:
    broken = with_task(plan, 0, reads={"flights": (0, 1, 4, 8), "planes": (0, 4)})
    assert "flights-1: its records do not reach exactly one task each (tasks that read it: 0, 1)" in said(broken)


def test_a_residue_that_reaches_no_task_is_found(filtered: Plan) -> None:
    broken = with_task(filtered, 9, reads={"flights": (9,)}, filters={})
    assert "planes-1: its records do not reach exactly one task each (tasks that read it: 1, 5)" in said(broken)


def test_a_filter_that_is_missing_is_found(filtered: Plan) -> None:
    assert "planes-1: its records do not reach exactly one task each" in said(with_task(filtered, 9, filters={}))


def test_a_filter_by_another_modulus_is_found(filtered: Plan) -> None:
    assert "planes-1: its records" in said(with_task(filtered, 9, filters={"planes": Residues(24, (9,))}))


def test_tasks_that_swap_a_stream_are_found_because_keys_do_not_meet(plan: Plan) -> None:
    swapped = with_task(
        with_task(plan, 0, reads={"flights": (0, 4, 8), "planes": (1, 5)}),
        1,
        reads={"flights": (1, 5, 9), "planes": (0, 4)},
    )
    assert said(swapped).splitlines() == [
        "stage flights+planes: task 0 takes keys of planes that belong to other tasks",
        "stage flights+planes: task 1 takes keys of planes that belong to other tasks",
    ]


def test_a_missing_task_is_found_in_tasks_and_groups(plan: Plan) -> None:
    found = said(with_tasks(plan, lambda tasks: tasks[:3]))
    assert "3 tasks take keys, but there are 4 cosets" in found
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
