"""Footprint: what the tasks of a planned stage read, leave out and have to do, to compare plans by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from partitioning.model.plan import EXCHANGE, STREAM, Input, Plan, Stage
from partitioning.model.tasks import Task
from partitioning.sizing.traffic import Traffic, traffic
from partitioning.sizing.workload import LEFT


@dataclass(frozen=True, slots=True)
class Footprint:
    """A stage of a plan in figures. Bytes are those of streams and, as far as they are known, of exchanges.

    Its tasks do `reads` of stream partitions: `amplification` is what they read beside what there is, and
    `filtering` tasks leave out records of others. `mean` and `heaviest` are the bytes that a task reads, `work`
    what the hardest-working one has to do, if what it leaves to others counts less, and `worst` is its number.
    `exchanges` and `moved` are the plan's, `groups` those of the stage's wave, `skew` what the largest of them
    reads beside the mean.
    """

    tasks: int
    reads: int
    amplification: Fraction
    filtering: int
    mean: Fraction
    heaviest: int
    work: int
    worst: int
    exchanges: int
    moved: Traffic
    groups: int
    skew: Fraction


def footprint(plan: Plan, stage: Stage) -> Footprint:
    """The figures of one stage of a plan."""
    sizes = {each.name: _sizes(plan, each) for each in stage.inputs}
    read = [sum(sizes[name][part] for name in task.reads for part in task.reads[name]) for task in stage.tasks]
    work = [_work(stage, task, sizes) for task in stage.tasks]
    moved = [traffic(plan, each) for each in plan.exchanges]
    groups = [group.bytes for group in plan.groups if group.wave == stage.wave]
    return Footprint(
        len(stage.tasks),
        sum(len(task.reads.get(name, ())) for task in stage.tasks for name in stage.streams),
        _ratio(sum(read), sum(sum(parts) for parts in sizes.values())),
        sum(bool(task.filters) for task in stage.tasks),
        Fraction(sum(read), len(read)),
        max(read),
        round(max(work)),
        work.index(max(work)),
        len(plan.exchanges),
        Traffic(_sum([each.records for each in moved]), _sum([each.bytes for each in moved])),
        len(groups),
        _ratio(max(groups) * len(groups), sum(groups)),
    )


def _sizes(plan: Plan, source: Input) -> Sequence[int]:
    """The bytes in each partition of an input; none where they are not known."""
    if source.kind == STREAM:
        return [part.bytes for part in plan.stream(source.step).partitions]
    count = source.placement.partitions
    if source.kind != EXCHANGE:
        return [0] * count
    (exchange,) = (each for each in plan.exchanges if each.name == source.name)
    whole = traffic(plan, exchange).bytes or 0
    return [whole // count + (number < whole % count) for number in range(count)]


def _work(stage: Stage, task: Task, sizes: Mapping[str, Sequence[int]]) -> Fraction:
    done = Fraction()
    for source in stage.inputs:
        for part in task.reads.get(source.name, ()):
            kept = _kept(stage, task, source, part)
            done += sizes[source.name][part] * (kept + LEFT * (1 - kept))
    return done


def _kept(stage: Stage, task: Task, source: Input, part: int) -> Fraction:
    """The share of a partition that is the task's, keys being spread evenly in it."""
    if task.null_keys:
        return Fraction(0)
    if source.name not in task.filters:
        return Fraction(1)
    step = gcd(source.placement.partitions, stage.cosets)
    mine = sum(residue % step == part % step for residue in task.owns)
    return Fraction(mine * step, stage.cosets)


def _ratio(some: int, of: int) -> Fraction:
    return Fraction(some, of) if of else Fraction(1)


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
