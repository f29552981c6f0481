"""What this version does not run is named, part by part, before a plan is stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batches.planning import not_runnable
from partitioning.model.graph import Op, Step
from partitioning.model.plan import Plan, Stage, StreamInput
from partitioning.model.streams import Column
from partitioning.model.tasks import Task
from partitioning.values import replace
from tests.plans import plan_of, tails, tails_found

COUNTED = Step(
    "counted", Op.COMBINE, ("joined",), "SELECT 1 AS one", ("1 AS one",), "tailnum", keyed=True, state=True, fan_in=2
)
SCORED = Step(
    "scored", Op.PROCESS, ("joined",), "", (), "tailnum", function="shop.scores:score", columns=(Column("t", "DATE"),)
)


def plan() -> Plan:
    return plan_of(tails(), tails_found())


def staged(change: Callable[[Stage], Stage]) -> Plan:
    found = plan()
    return replace(found, stages=tuple(change(stage) for stage in found.stages))


def more_steps(*steps: Step) -> Plan:
    return staged(lambda stage: replace(stage, steps=(*stage.steps, *steps)))


def read_otherwise(stage: Stage, **change: object) -> Stage:
    return replace(stage, inputs=(replace(stage.inputs[0], **change), *stage.inputs[1:]))


CASES: dict[str, tuple[Callable[[], Plan], list[str]]] = {
    "state": (lambda: more_steps(COUNTED), ["step counted goes on from its own result of the batch before"]),
    "a stateful function": (
        lambda: more_steps(replace(SCORED, state=True)),
        ["step scored goes on from its own result of the batch before"],
    ),
    "several parts": (
        lambda: more_steps(replace(SCORED, state=True), COUNTED),
        [
            "step scored goes on from its own result of the batch before",
            "step counted goes on from its own result of the batch before",
        ],
    ),
}

# What an order says of a task is obeyed, whatever rule it was made by.
OBEYED: dict[str, Callable[[Stage], Stage]] = {
    "another partition count": lambda stage: read_otherwise(
        stage, placement=replace(stage.inputs[0].placement, partitions=4)
    ),
    "some of the partitions": lambda stage: read_otherwise(stage, only=(4, 5)),
    "a function": lambda stage: replace(stage, steps=(*stage.steps, SCORED)),
    "cosets dealt to fewer tasks": lambda stage: replace(
        stage, tasks=(Task(0, {"flights": (0,)}, owns=(0,)), Task(1, {}, owns=(1, 2, 3)))
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_part_that_does_not_run_yet_is_a_finding(case: str) -> None:
    make, parts = CASES[case]
    found = not_runnable(make())
    assert [finding.what for finding in found] == [f"{part}: this version does not run that yet" for part in parts]
    assert all(finding.where == "stage flights+planes" for finding in found)
    assert all("`coset explain tail_activity` shows the plan" in finding.then for finding in found)


@pytest.mark.parametrize("case", OBEYED)
def test_whatever_tasks_read_and_do_runs(case: str) -> None:
    changed = staged(OBEYED[case])
    assert changed != plan()
    assert not_runnable(changed) == ()


def test_a_plan_of_streams_and_sql_runs() -> None:
    found = plan()
    assert {type(each) for stage in found.stages for each in stage.inputs} == {StreamInput}
    assert not_runnable(found) == ()
