"""The check of a whole plan: what stages hand to each other through exchanges, as results and as state."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import ExchangeInput, ResultInput, StateInput
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.checked import said, with_stage
from tests.plans import arrived, plan_of


def counted_by_delay(scheme: str | None = None, fan_in: int | None = None) -> Plan:
    """Flights counted by their delay in a later wave, perhaps combined on the way, going on from a first batch."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    partial = pipeline.stream("a", key="tailnum", partitions=6).partial("count(*) AS n", by="dep_delay", name="part")
    partial.combine("sum(n) AS n", running=True, fan_in=fan_in, name="counted").to_stream().write("t")
    first = plan_of(pipeline, [arrived("a", [10] * 6)])
    return plan_of(pipeline, [arrived("a", [20] * 6)], batch=1, published=first, scheme=scheme)


@pytest.fixture
def moved() -> Plan:
    """Six tasks in each wave."""
    return counted_by_delay()


@pytest.fixture
def leveled() -> Plan:
    """Six tasks in the first wave and in the last, and in between three unifiers and then two for each of these."""
    return counted_by_delay(fan_in=2)


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


def with_input(plan: Plan, number: int, **changes: object) -> Plan:
    """One input of the last stage changed."""
    inputs = list(plan.stages[-1].inputs)
    inputs[number] = replace(inputs[number], **changes)
    return with_stage(plan, len(plan.stages) - 1, inputs=tuple(inputs))


def test_exchanges_unifiers_state_and_changed_counts_as_they_are_planned_are_sound(
    moved: Plan, leveled: Plan, changed: Plan
) -> None:
    assert leveled.exchanges[0].unifiers == (3, 2)
    assert [len(stage.tasks) for stage in leveled.stages] == [6, 18, 12, 6]
    assert [type(read) for read in moved.stages[1].inputs] == [ExchangeInput, StateInput]
    assert [check_plan(plan) for plan in (moved, leveled, changed)] == [moved, leveled, changed]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stage": "nobody"}, "there is no stage nobody to write it"),
        ({"source": "counted"}, "stage a has no counted to move"),
        ({"name": "other"}, "there is no exchange part.exchange"),
        ({"name": "other"}, "no stage reads it"),
        ({"placement": Placement("dep_delay", KeyFormat.STRING, MURMUR2, 5)}, "holds other records, or elsewhere"),
        ({"placement": Placement("dep_delay", KeyFormat.STRING, MURMUR2, 0)}, "it has 0 partitions"),
    ],
)
def test_an_exchange_that_is_not_written_read_or_combined_as_it_must_be_is_found(
    moved: Plan, changes: dict[str, object], what: str
) -> None:
    assert what in said(with_exchange(moved, **changes))


def with_level(plan: Plan, number: int, **changes: object) -> Plan:
    """One of the exchanges of a plan changed."""
    exchanges = list(plan.exchanges)
    exchanges[number] = replace(exchanges[number], **changes)
    return replace(plan, exchanges=tuple(exchanges))


@pytest.mark.parametrize(
    ("number", "changes", "what"),
    [
        (0, {"unifiers": (3, 3)}, "its unifiers do not narrow what 6 tasks write: 3, 3"),
        (0, {"unifiers": (6,)}, "its unifiers do not narrow what 6 tasks write: 6"),
        (0, {"unifiers": (3, 0)}, "its unifiers do not narrow what 6 tasks write: 3, 0"),
        (1, {"unifiers": (3,)}, "its unifiers do not narrow what 3 tasks write: 3"),
        (0, {"unifiers": ()}, "it has unifiers and no step to combine by, or a step and no unifiers"),
        (2, {"combine": "counted"}, "it has unifiers and no step to combine by, or a step and no unifiers"),
        (0, {"unifiers": (4, 2)}, "part.exchange.1 holds other records, or elsewhere, than it reads"),
        (0, {"unifiers": (3,)}, "stage part.exchange.1: it does not leave what it combines of part.exchange.1"),
        (1, {"stage": "a"}, "stage part.exchange.1: it does not leave what it combines of part.exchange.1"),
        (0, {"combine": "part"}, "stage part.exchange.1: it does not belong to the unifiers of part.exchange.1"),
        (1, {"source": "counted"}, "stage part.exchange.1 has no counted to move"),
        (2, {"combine": "counted", "unifiers": (1,)}, "stage part.exchange: it reads part.exchange apart and does not"),
    ],
)
def test_levels_that_do_not_pass_on_all_that_is_to_be_combined_are_found(
    leveled: Plan, number: int, changes: dict[str, object], what: str
) -> None:
    assert what in said(with_level(leveled, number, **changes))


def test_a_level_that_combines_otherwise_than_its_step_is_found(leveled: Plan) -> None:
    (step,) = leveled.stages[1].steps
    other = replace(step, expressions=("max(n) AS n",))
    what = "stage part.exchange.1: it does not combine as counted does"
    assert said(with_stage(leveled, 1, steps=(other,))) == what


def test_unifiers_that_are_lost_doubled_or_exchanged_are_found(leveled: Plan) -> None:
    tasks = leveled.stages[1].tasks
    lost = replace(tasks[7], reads={}, keyless={})
    assert "part.exchange.1-7, stage part.exchange.1: its records do not reach exactly one task each" in said(
        with_stage(leveled, 1, tasks=(*tasks[:7], lost, *tasks[8:]))
    )
    doubled = replace(tasks[7], reads={"part.exchange.1": (6, 7)})
    assert "part.exchange.1-6, stage part.exchange.1: its records do not reach exactly one task each" in said(
        with_stage(leveled, 1, tasks=(*tasks[:7], doubled, *tasks[8:]))
    )
    swapped = (replace(tasks[1], task=0), replace(tasks[0], task=1), *tasks[2:])
    what = "stage part.exchange.1: its tasks are not numbered as what they read of part.exchange.1"
    assert said(with_stage(leveled, 1, tasks=swapped)) == what


def test_records_without_a_key_that_a_unifier_does_not_account_for_are_found(leveled: Plan) -> None:
    tasks = leveled.stages[1].tasks
    # The third unifier of the first of six partitions.
    without = (*tasks[:12], replace(tasks[12], keyless={}), *tasks[13:])
    what = "stage part.exchange.1: records without a key in part.exchange.1 12 are not exactly one task's"
    assert said(with_stage(leveled, 1, tasks=without)) == what


def test_a_slice_of_an_exchange_that_its_owner_does_not_read_is_found(moved: Plan) -> None:
    last = moved.stages[1]
    tasks = (replace(last.tasks[0], reads={"part.exchange": (0, 1)}), *last.tasks[1:])
    found = said(with_stage(moved, 1, tasks=tasks))
    assert "stage part.exchange: task 0 takes keys of part.exchange that belong to other tasks" in found
    assert "part.exchange-1, stage part.exchange: its records do not reach exactly one task each" in found
    assert "counted.state-0, stage part.exchange: its records do not reach" in found


def test_records_without_a_key_that_would_not_meet_their_state_are_found() -> None:
    plan = counted_by_delay("counted=tasks(12)")
    stage = plan.stages[1]
    assert [task.task for task in stage.tasks if 0 in task.reads["counted.state"]] == [0, 6]
    apart = {0: {"part.exchange": (0,)}, 6: {"part.exchange": (6,), "counted.state": (0,)}}
    tasks = tuple(replace(task, keyless=apart.get(task.task, task.keyless)) for task in stage.tasks)
    what = "records without a key are not one task's, but those of 0, 6"
    assert said(with_stage(plan, 1, tasks=tasks)) == f"stage part.exchange: {what}"


def test_residues_that_several_tasks_own_are_found(moved: Plan) -> None:
    last = moved.stages[1]
    tasks = (replace(last.tasks[0], owns=(0, 1)), *last.tasks[1:])
    assert "keys with h(key) mod 6 = 1 are not exactly one task's" in said(with_stage(moved, 1, tasks=tasks))


def test_what_is_read_before_it_is_there_is_found(moved: Plan) -> None:
    early = with_stage(moved, 1, wave=0)
    assert "part.exchange is not there before wave 0" in said(early)
    assert "stages are not in the order of their waves" in said(with_stage(moved, 0, wave=2))
    assert "group 2 of wave 1 has tasks of other waves" in said(early)


def test_groups_that_are_numbered_otherwise_are_found(moved: Plan) -> None:
    assert "groups are not numbered" in said(replace(moved, groups=moved.groups[::-1]))


def test_state_of_this_batch_or_of_another_step_is_found(moved: Plan) -> None:
    for changes in ({"batch": 1}, {"batch": 2}, {"step": "part"}):
        assert "counted.state is no state that a step of it left" in said(with_input(moved, 1, **changes))


def test_a_result_that_was_left_elsewhere_or_never_is_found(moved: Plan) -> None:
    moving, last = moved.stages
    placement = Placement("dep_delay", KeyFormat.STRING, MURMUR2, 5)
    for step, what in (
        ("part", "part is left in 6 partitions, not 5"),
        ("counted", "counted is not there before wave 1"),
        ("nothing", "nothing is not there before wave 1"),
    ):
        inputs = (last.inputs[0], ResultInput("counted.state", step, placement))
        assert what in said(replace(moved, stages=(moving, replace(last, inputs=inputs))))


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
    assert [[read.name for read in stage.streams] for stage in plan.stages] == [["a"], ["a"]]
    tasks = (replace(plan.stages[1].tasks[0], reads={"moved.exchange": (0,)}), *plan.stages[1].tasks[1:])
    assert said(with_stage(plan, 1, tasks=tasks)).startswith("a-0, stage a+moved.exchange: its records do not reach")
