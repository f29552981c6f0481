"""Late records that are to be set aside: by which plans nobody would know whose record it is."""

from __future__ import annotations

from collections.abc import Iterator

from partitioning.authoring.state_sql import sets_late_aside
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.plan import Plan, Stage
from partitioning.model.stage_inputs import ExchangeInput, ResultInput


def late_findings(plan: Plan) -> Iterator[Finding]:
    """The windows that set late records aside and read records which have moved, or which another stage has made: they
    have no offset any more, so a late one would stop the batch."""
    for stage in plan.stages:
        for step in stage.steps:
            if sets_late_aside(step):
                yield from (_finding(step, name) for name in _handed_on(stage, step))


def _handed_on(stage: Stage, step: Step) -> Iterator[str]:
    """The streams and steps before a step whose records other tasks have written."""
    steps, before = {each.name: each for each in stage.steps}, [*step.inputs]
    for name in before:
        before.extend(each for each in (steps[name].inputs if name in steps else ()) if each not in before)
    for read in stage.inputs:
        if isinstance(read, ExchangeInput | ResultInput) and read.step in before:
            yield read.step


def _finding(step: Step, name: str) -> Finding:
    what = f"records of {name!r} move before it, and behind that nobody knows whose they are, to set a late one aside"
    then = 'use late="drop" or "correct", for as long as they move; what is kept stays'
    return Finding.of(Kind.DECLARATION, what, f"step {step.name!r}", then, step=step.name, moved=name)
