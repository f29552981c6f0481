"""A plan's digest and what it looks up, which are worked out once."""

from __future__ import annotations

import json

from partitioning.documents.document import decode, digest, encode
from partitioning.model.plan import Plan
from partitioning.values import replace
from tests.plans import plan_of, tails, tails_found


def test_a_digest_is_worked_out_once_and_is_that_of_the_value_after_a_change_too() -> None:
    plan = plan_of(tails(), tails_found())
    first = digest(plan)
    assert digest(plan) is first
    changed = replace(plan, batch=7)
    assert digest(changed) == json.loads(encode(changed))["digest"] != first
    assert digest(replace(changed, batch=plan.batch)) == first
    assert digest(decode(Plan, encode(changed), "a plan")) == digest(changed)


def test_what_a_plan_looks_up_is_that_of_the_value_after_a_change_too() -> None:
    plan = plan_of(tails(), tails_found())
    assert plan.stream("flights").partitions[0].end == 250
    (stage,) = plan.stages
    assert plan.stage(stage.name) is stage
    later = replace(plan.streams[0], partitions=(replace(plan.streams[0].partitions[0], end=9),))
    changed = replace(plan, streams=(later, plan.streams[1]), stages=(replace(stage, cosets=3),))
    assert changed.stream("flights").partitions[0].end == 9
    assert changed.stage(stage.name).cosets == 3


def test_documents_that_were_looked_at_are_still_equal_to_those_that_were_not() -> None:
    one, other = plan_of(tails(), tails_found()), plan_of(tails(), tails_found())
    digest(one)
    one.stream("flights")
    assert one == other
    assert encode(one) == encode(other)
