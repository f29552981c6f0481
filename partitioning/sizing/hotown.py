"""Own tasks of hot keys: what it saves and costs to give each hot key a task of its own, or several, by a plan that
does."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import OwnTasks
from partitioning.values import Value


class HotOwn(Value, frozen=True):
    """A key with the share `of_stage` of the records of a `stage`, whose `task` would have no other key to speak of.

    It would share the key with the tasks after it, if it needs more `tasks` than one. The key is in task `beside`
    without that. The longest task of the stage would take `longest` times as many records as now, if the other keys
    spread evenly. At most `reads_again` bytes would be read by several tasks.
    """

    stage: str
    key: str
    of_stage: Fraction
    beside: int
    task: int
    longest: Fraction
    reads_again: int
    tasks: int = 1


def hot_own(plan: Plan) -> tuple[HotOwn, ...]:
    """The keys that a plan gives a task of their own, first those that weigh most in their stage."""
    found = [each for stage in plan.stages if isinstance(stage.why, OwnTasks) for each in _of(plan, stage, stage.why)]
    return tuple(sorted(found, key=lambda each: (-each.of_stage, each.stage, each.task)))


def _of(plan: Plan, stage: Stage, why: OwnTasks) -> Iterator[HotOwn]:
    count = why.of.cosets
    shares = [Fraction(own.percent, 100) for own in why.keys]
    others = (1 - sum(shares, Fraction())) / count
    together = [others] * count
    for own, share in zip(why.keys, shares, strict=True):
        together[own.residue % count] += share
    alone = [(share + others * count / stage.cosets) / own.tasks for own, share in zip(why.keys, shares, strict=True)]
    longest = max(others, *alone) / max(together)
    for own, share, numbers in zip(why.keys, shares, why.numbers, strict=True):
        tasks = [stage.tasks[number] for number in numbers]
        read = (part for task in tasks for each in stage.streams for part in plan.stream(each.name).read_by(task))
        again = sum(part.bytes for part in read)
        yield HotOwn(stage.name, own.key, share, own.residue % count, numbers[0], longest, again, own.tasks)
