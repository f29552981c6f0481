"""Plans that are wrong, and what the check says of them."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from partitioning.model.plan import Plan
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.goldens import expect_golden
from tests.refused import findings_of


def said(plan: Plan) -> str:
    """What the check finds, a line for each."""
    return "\n".join(f"{place.where}: {place.what}" for each in findings_of(check_plan, plan) for place in each.places)


def expect_said(name: str, wrong: Mapping[str, Plan]) -> None:
    """Compare what the check says of plans, each of which is wrong in one way, with the golden file `name`."""
    expect_golden(name, "\n".join(f"{case}:\n{indent(said(plan), '  ')}\n" for case, plan in wrong.items()))


def with_stage(plan: Plan, number: int, **changes: object) -> Plan:
    """The plan with one stage changed."""
    stages = list(plan.stages)
    stages[number] = replace(stages[number], **changes)
    return replace(plan, stages=tuple(stages))


def with_task(plan: Plan, number: int, *, stage: int = 0, **changes: object) -> Plan:
    """The plan with one task of a stage changed."""
    tasks = list(plan.stages[stage].tasks)
    tasks[number] = replace(tasks[number], **changes)
    return with_stage(plan, stage, tasks=tuple(tasks))
