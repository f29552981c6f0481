"""What this version does not run is named, part by part, before a plan is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from batches.planning import not_runnable
from partitioning.model.graph import Step
from partitioning.model.placement import Placement
from partitioning.model.plan import EXCHANGE, RESULT, STREAM, Exchange, Input, Plan, Stage
from partitioning.model.streams import Column
from partitioning.model.tasks import Task
from tests.plans import plan_of, tails, tails_found

COUNTED = Step(
    "counted", "combine", ("joined",), "SELECT 1 AS one", ("1 AS one",), "tailnum", keyed=True, state=True, fan_in=2
)
SCORED = Step(
    "scored", "process", ("joined",), "", (), "tailnum", function="shop.scores:score", columns=(Column("t", "DATE"),)
)
BY_ORIGIN = Placement("origin", "string", "murmur2", 3)


def plan() -> Plan:
    return plan_of(tails(), tails_found())


def staged(change: Callable[[Stage], Stage]) -> Plan:
    found = plan()
    return replace(found, stages=tuple(change(stage) for stage in found.stages))


def more_steps(*steps: Step) -> Plan:
    return staged(lambda stage: replace(stage, steps=(*stage.steps, *steps)))


def read_otherwise(stage: Stage, **change: object) -> Stage:
    return replace(stage, inputs=(replace(stage.inputs[0], **change), *stage.inputs[1:]))


def exchanged() -> Plan:
    exchange = Exchange("joined.exchange", "joined", "flights+planes", BY_ORIGIN, ("counted",), "dirty since joined")
    read = Input("joined.exchange", EXCHANGE, "joined", BY_ORIGIN)
    later = Stage("joined", (read,), (), (), "cogroup", 3, "", (), wave=1)
    found = plan()
    return replace(found, exchanges=(exchange,), stages=(*found.stages, later))


CASES: dict[str, tuple[Callable[[], Plan], list[str]]] = {
    "an exchange": (exchanged, ["exchange joined.exchange moves the records of joined to murmur2(origin) mod 3"]),
    "a result": (
        lambda: staged(lambda stage: read_otherwise(stage, kind=RESULT)),
        ["what flights gives is read from an earlier stage"],
    ),
    "state": (lambda: more_steps(COUNTED), ["step counted goes on from its own result of the batch before"]),
    "a function": (lambda: more_steps(SCORED), ["step scored runs the function shop.scores:score"]),
    "a stateful function": (
        lambda: more_steps(replace(SCORED, state=True)),
        ["step scored runs the function shop.scores:score"],
    ),
    "several parts": (
        lambda: more_steps(SCORED, COUNTED),
        [
            "step scored runs the function shop.scores:score",
            "step counted goes on from its own result of the batch before",
        ],
    ),
    "another partition count": (
        lambda: staged(lambda stage: read_otherwise(stage, placement=replace(stage.inputs[0].placement, partitions=4))),
        ["stream flights has 12 partitions now and is read as 4"],
    ),
    "some of the partitions": (
        lambda: staged(lambda stage: read_otherwise(stage, only=(4, 5))),
        ["of stream flights partitions 4, 5 are read apart from the others"],
    ),
    "cosets dealt to fewer tasks": (
        lambda: staged(
            lambda stage: replace(stage, tasks=(Task(0, {"flights": (0,)}, owns=(0,)), Task(1, {}, owns=(1, 2, 3))))
        ),
        ["the cosets are dealt to tasks otherwise than one each, from task 1 on"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_part_that_does_not_run_yet_is_a_finding(case: str) -> None:
    make, parts = CASES[case]
    found = not_runnable(make())
    assert [finding.what for finding in found] == [f"{part}: this version does not run that yet" for part in parts]
    assert all(finding.where == "stage flights+planes" for finding in found)
    assert all("`coset explain tail_activity` shows the plan" in finding.then for finding in found)


def test_a_plan_of_streams_and_sql_runs() -> None:
    found = plan()
    assert {each.kind for stage in found.stages for each in stage.inputs} == {STREAM}
    assert not_runnable(found) == ()
