"""Taken away: how much state of its steps a batch would abandon, as far as its plan tells."""

from __future__ import annotations

from collections.abc import Iterator

from partitioning.commands import PlanAsking
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.graph import Op, Step, state_of
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateInput
from partitioning.planning.beginnings import beginnings
from partitioning.planning.stages.draft import StateSnapshot
from partitioning.planning.stages.step_states import States
from partitioning.sections import many


def check_taken_away(plan: Plan, published: Plan | None, kept: StateSnapshot | None, allowance: Allowance) -> None:
    """Raise Refused, with all findings, if a batch would abandon more state of a step than it may."""
    findings = list(_misnamed(plan, published, allowance))
    if published is not None:
        findings.extend(_left_behind(plan, published, kept, allowance))
    refuse(findings)


def _misnamed(plan: Plan, published: Plan | None, allowance: Allowance) -> Iterator[Finding]:
    known = {*plan.tables, *(step.name for of in (plan, published) if of for step in of.steps)}
    for name in allowance.named:
        if name not in known:
            what = f"{name!r} is no table or step of the pipeline"
            yield Finding.of(Kind.NAME, what, "--take-away", f"name one of {', '.join(sorted(known))}", name=name)


def _left_behind(plan: Plan, published: Plan, kept: StateSnapshot | None, allowance: Allowance) -> Iterator[Finding]:
    """What steps kept that the batch does not read. A table that is not kept any more is read whole."""
    reads = {state_of(read.was) if read.was else read.name for read in plan.states}
    asked = {*allowance.named, *_begun_anew(plan, published)}
    for step, left in States(published, kept, day_end=plan.day_end).left():
        rows = _least(step, left)
        if left.name in reads or step.op is Op.TABLE or step.name in asked or not allowance.is_too_much(rows, 0):
            continue
        what = f"step {step.name!r} kept {many(rows, 'row')}, and the batch would go on without them"
        then = ("keep the step as it was; or, if they may go, ", PlanAsking(plan.pipeline, take_away=step.name))
        yield Finding.of(
            Kind.ROWS_TAKEN, what, f"state of {step.name}, left by batch {left.batch}", then, step=step.name, rows=rows
        )


def _begun_anew(plan: Plan, published: Plan) -> Iterator[str]:
    """The steps that begin anew as a user asked, and those of the last batch that they replace."""
    yield from plan.anew
    for beginning in beginnings(plan.graph, published.graph, dict.fromkeys(plan.tables)):
        if beginning.step in plan.anew:
            yield beginning.renamed or beginning.step


def _least(step: Step, left: StateInput) -> int:
    """How many rows a step kept at least: those that it kept by key stand again in later runs."""
    apart = step.state is not False and bool(step.state.sql)
    return sum(run.records for run in left.runs) if apart else max((run.records for run in left.runs), default=0)
