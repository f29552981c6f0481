"""Footprint: what the tasks of a planned stage read, leave out and have to do, to compare plans by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from partitioning.model.plan import Plan, Stage
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput, StateInput, StreamInput
from partitioning.model.takes import Task, taken
from partitioning.sizing.traffic import Traffic, traffic
from partitioning.sizing.workload import LEFT
from partitioning.values import Value


class Footprint(Value, frozen=True):
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
    sizes = {source.name: _sizes(plan, source) for source in stage.inputs}
    read = [sum(sum(_read(plan, task, name, sizes).values()) for name in task.reads) for task in stage.tasks]
    work = [_work(plan, stage, task, sizes) for task in stage.tasks]
    moved = [traffic(plan, exchange) for exchange in plan.exchanges]
    groups = [group.bytes for group in plan.groups if group.wave == stage.wave]
    return Footprint(
        len(stage.tasks),
        sum(len(task.reads.get(read.name, ())) for task in stage.tasks for read in stage.streams),
        _ratio(sum(read), sum(sum(parts) for parts in sizes.values())),
        sum(bool(task.filters) for task in stage.tasks),
        Fraction(sum(read), len(read)),
        max(read),
        round(max(work)),
        work.index(max(work)),
        len(plan.exchanges),
        Traffic(_sum([passing.records for passing in moved]), _sum([passing.bytes for passing in moved])),
        len(groups),
        _ratio(max(groups) * len(groups), sum(groups)),
    )


def _sizes(plan: Plan, source: Input) -> Sequence[int]:
    """The bytes in each partition of an input; none where they are not known."""
    match source:
        case StreamInput():
            return [part.bytes for part in plan.stream(source.name).partitions]
        case ExchangeInput():
            count = len(source.numbers)
            (exchange,) = (exchange for exchange in plan.exchanges if exchange.name == source.name)
            whole = traffic(plan, exchange).bytes or 0
            return [whole // count + (number < whole % count) for number in range(count)]
        case ResultInput() | StateInput():
            return [0] * source.placement.partitions


def _read(plan: Plan, task: Task, name: str, sizes: Mapping[str, Sequence[int]]) -> Mapping[int, int]:
    """The bytes that a task reads of each partition of an input."""
    if task.span_of(name) is not None:
        return {part.partition: part.bytes for part in plan.stream(name).read_by(task)}
    return {number: sizes[name][number] for number in task.reads.get(name, ())}


def _work(plan: Plan, stage: Stage, task: Task, sizes: Mapping[str, Sequence[int]]) -> Fraction:
    done = Fraction()
    for source in stage.inputs:
        for part, size in _read(plan, task, source.name, sizes).items():
            kept = _kept(stage, task, source, part)
            done += size * (kept + LEFT * (1 - kept))
    return done


def _kept(stage: Stage, task: Task, source: Input, part: int) -> Fraction:
    """The share of a partition that is the task's, keys being spread evenly in it."""
    step = source.placement.shared(stage.cosets)
    residues = taken(task, source.name, stage.cosets, step).get(part % step, ())
    return Fraction(len(residues) * step, stage.cosets)


def _ratio(part: int, of: int) -> Fraction:
    return Fraction(part, of) if of else Fraction(1)


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
