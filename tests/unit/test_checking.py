"""The check of a whole plan: what a wrong partitioner could do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.placement import Placement
from partitioning.model.plan import Plan
from partitioning.model.tasks import Residues, Task
from partitioning.planning.check import check
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
    assert said(broken) == (
        "flights-10, stage flights+planes: its records do not reach exactly one task each (tasks that read it: none)"
    )


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


# Waves, exchanges, results and state


@pytest.fixture
def moved() -> Plan:
    """Flights counted by their delay in a second wave, combined on the way, going on from a first batch."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    partial = pipeline.stream("a", key="tailnum", partitions=6).partial("count(*) AS n", by="dep_delay", name="part")
    partial.combine("sum(n) AS n", running=True, fan_in=2, name="counted").write("t")
    first = plan_of(pipeline, [arrived("a", [10] * 6)])
    return plan_of(pipeline, [arrived("a", [20] * 6)], batch=1, published=first)


@pytest.fixture
def changed() -> Plan:
    """A stream that grew from 4 to 6 partitions."""

    def counting(partitions: int) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        pipeline.stream("a", key="tailnum", partitions=partitions).aggregate("count(*) AS n", name="n").write("t")
        return pipeline

    first = plan_of(counting(4), [arrived("a", [10] * 4)])
    return plan_of(counting(6), [arrived("a", [20] * 6)], batch=1, published=first)


def with_exchange(plan: Plan, **changes: object) -> Plan:
    (exchange,) = plan.exchanges
    return replace(plan, exchanges=(replace(exchange, **changes),))


def with_stage(plan: Plan, number: int, **changes: object) -> Plan:
    stages = list(plan.stages)
    stages[number] = replace(stages[number], **changes)
    return replace(plan, stages=tuple(stages))


def with_input(plan: Plan, number: int, **changes: object) -> Plan:
    """One input of the last stage changed."""
    inputs = list(plan.stages[-1].inputs)
    inputs[number] = replace(inputs[number], **changes)
    return with_stage(plan, len(plan.stages) - 1, inputs=tuple(inputs))


def test_exchanges_unifiers_state_and_changed_counts_as_they_are_planned_are_sound(moved: Plan, changed: Plan) -> None:
    assert moved.exchanges[0].unifiers == (3, 2)
    assert [each.kind for each in moved.stages[1].inputs] == ["exchange", "state"]
    assert (check(moved), check(changed)) == (moved, changed)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stage": "nobody"}, "there is no stage nobody to write it"),
        ({"source": "counted"}, "stage a has no counted to move"),
        ({"name": "other"}, "there is no exchange part.exchange"),
        ({"name": "other"}, "no stage reads it"),
        ({"unifiers": (3, 3)}, "its unifiers do not narrow what 6 tasks write: 3, 3"),
        ({"unifiers": (6,)}, "its unifiers do not narrow what 6 tasks write: 6"),
        ({"unifiers": (3, 0)}, "its unifiers do not narrow what 6 tasks write: 3, 0"),
        ({"unifiers": ()}, "it has unifiers and no step to combine by, or a step and no unifiers"),
        ({"placement": Placement("dep_delay", "string", "murmur2", 5)}, "holds other records, or elsewhere"),
        ({"placement": Placement("dep_delay", "string", "murmur2", 0)}, "it has 0 partitions"),
    ],
)
def test_an_exchange_that_is_not_written_read_or_combined_as_it_must_be_is_found(
    moved: Plan, changes: dict[str, object], what: str
) -> None:
    assert what in said(with_exchange(moved, **changes))


def test_a_slice_of_an_exchange_that_its_owner_does_not_read_is_found(moved: Plan) -> None:
    last = moved.stages[1]
    tasks = (replace(last.tasks[0], reads={"part.exchange": (0, 1)}), *last.tasks[1:])
    found = said(with_stage(moved, 1, tasks=tasks))
    assert "stage part.exchange: task 0 takes keys of part.exchange that belong to other tasks" in found
    assert "part.exchange-1, stage part.exchange: its records do not reach exactly one task each" in found
    assert "counted.state-0, stage part.exchange: its records do not reach" in found


def test_residues_that_several_tasks_own_are_found(moved: Plan) -> None:
    last = moved.stages[1]
    tasks = (replace(last.tasks[0], owns=(0, 1)), *last.tasks[1:])
    assert "keys with h(key) mod 6 = 1 are not exactly one task's" in said(with_stage(moved, 1, tasks=tasks))


def test_a_keyed_stage_whose_tasks_own_nothing_is_found(plan: Plan) -> None:
    broken = with_tasks(plan, lambda tasks: [replace(task, owns=()) for task in tasks])
    assert "no task owns keys, but joined needs them together" in said(broken)


def test_a_partition_that_is_not_there_is_found(plan: Plan) -> None:
    found = said(with_task(plan, 0, reads={"flights": (0, 4, 8, 12), "planes": (0, 4)}))
    assert found == "stage flights+planes: task 0 reads flights-12, which is not there to be read"


def test_what_is_read_before_it_is_there_is_found(moved: Plan) -> None:
    early = with_stage(moved, 1, wave=0)
    assert "part.exchange is not there before wave 0" in said(early)
    assert "stages are not in the order of their waves" in said(with_stage(moved, 0, wave=2))
    assert "group 2 of wave 1 has tasks of other waves" in said(early)


def test_groups_that_are_numbered_otherwise_are_found(moved: Plan) -> None:
    assert "groups are not numbered" in said(replace(moved, groups=moved.groups[::-1]))


def test_state_of_this_batch_or_of_another_step_is_found(moved: Plan) -> None:
    for changes in ({"batch": 1}, {"batch": None}, {"step": "part"}):
        assert "counted.state is no state that a step of it left" in said(with_input(moved, 1, **changes))


def test_a_result_that_was_left_elsewhere_or_never_is_found(moved: Plan) -> None:
    for changes, what in (
        ({"step": "part"}, "part is left in 6 partitions, not 5"),
        ({"step": "counted"}, "counted is not there before wave 1"),
        ({"step": "nothing"}, "nothing is not there before wave 1"),
    ):
        placement = Placement("dep_delay", "string", "murmur2", 5)
        assert what in said(with_input(moved, 1, kind="result", placement=placement, batch=None, **changes))


def test_partitions_of_a_changed_stream_that_neither_move_nor_are_read_are_found(changed: Plan) -> None:
    (exchange,) = changed.exchanges
    assert exchange.only == (0, 1, 2, 3)
    assert "stage a: it does not read every partition of a once" in said(with_exchange(changed, only=(0, 1, 2)))
    assert "stage a.changed: it does not read every partition of a once" in said(with_exchange(changed, only=(0, 1)))
    assert "stage a.changed does not read all that moves of a" in said(with_exchange(changed, only=(0, 1, 2, 3, 4)))
    assert "stage a: it does not read every partition of a once" in said(with_input(changed, 0, only=(5,)))


def test_names_that_are_there_twice_are_found_before_anything_else(moved: Plan) -> None:
    assert said(replace(moved, stages=(*moved.stages, moved.stages[1]))) == (
        "batch 1: stages are there twice: part.exchange\nbatch 1: steps are there twice: counted"
    )
    assert "inputs are there twice: part.exchange" in said(with_input(moved, 1, name="part.exchange"))


def test_a_stream_may_be_read_by_several_stages_each_of_them_whole() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    a = pipeline.stream("a", key="tailnum", partitions=6)
    a.join(a.rekey("dep_delay", name="moved"), "1 AS one", name="both").write("t")
    plan = plan_of(pipeline, [arrived("a", [10] * 6)])
    assert [stage.streams for stage in plan.stages] == [("a",), ("a",)]
    tasks = (replace(plan.stages[1].tasks[0], reads={"moved.exchange": (0,)}), *plan.stages[1].tasks[1:])
    assert said(with_stage(plan, 1, tasks=tasks)).startswith("a-0, stage a+moved.exchange: its records do not reach")
