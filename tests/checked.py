"""Plans that are wrong, and what the check says of them."""

from __future__ import annotations

import pytest

from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.planning.check import check_plan
from partitioning.values import replace


def said(plan: Plan) -> str:
    """What the check finds, a line for each."""
    with pytest.raises(Refused) as refusal:
        check_plan(plan)
    return "\n".join(f"{place.where}: {place.what}" for finding in refusal.value.findings for place in finding.places)


def with_stage(plan: Plan, number: int, **changes: object) -> Plan:
    """The plan with one stage changed."""
    stages = list(plan.stages)
    stages[number] = replace(stages[number], **changes)
    return replace(plan, stages=tuple(stages))
