"""Workload: what the tasks of a stage read, leave out and have to do, planned or under any number of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Exchange, Plan, Stage
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedPartition, ResultInput, StateInput, StreamInput
from partitioning.model.takes import Task, taken
from partitioning.values import Value


class Traffic(Value, frozen=True):
    """Records and bytes; None where they are not known."""

    records: int | None
    bytes: int | None


def traffic(plan: Plan, exchange: Exchange) -> Traffic:
    """How many records and bytes pass through an exchange of this plan.

    For a stream, that is what the plan reads of it. For a step, it is the last batch's count; each record has the mean
    size of the streams that the step's records come from.
    """
    if not exchange.of_part and any(exchange.source == stream.name for stream in plan.streams):
        parts = plan.stream(exchange.source).partitions
        return _total(parts if exchange.only is None else [parts[number] for number in exchange.only])
    if exchange.moves is None:
        return Traffic(None, None)
    origin = _total([part for name in sorted(_streams(plan, exchange.source)) for part in plan.stream(name).partitions])
    assert origin.records is not None
    assert origin.bytes is not None
    return Traffic(exchange.moves, origin.bytes * exchange.moves // max(origin.records, 1))


def _total(parts: Sequence[PlannedPartition]) -> Traffic:
    return Traffic(sum(part.records for part in parts), sum(part.bytes for part in parts))


def _streams(plan: Plan, source: str) -> set[str]:
    """The streams that a step's records come from."""
    inputs = {step.name: step.inputs for step in plan.steps}
    streams: set[str] = set()
    left = [source]
    while left:
        name = left.pop()
        left.extend(inputs.get(name, ()))
        if name not in inputs:
            streams.add(name)
    return streams


# What a byte costs that a task reads and leaves to other tasks, beside one that it keeps: 43 of 100, measured
# on 15 million records under cogroup and elastic(2) to elastic(8), which took 2.0, 2.9, 4.6 and 7.9 CPU seconds.
LEFT = Fraction(43, 100)


class Load(Value, frozen=True):
    """The work of a stage's tasks: the bytes that they keep, and LEFT of the bytes that they leave to other tasks."""

    mean: Fraction
    heaviest: Fraction


class Workload(Value, frozen=True, dict=True):
    """The bytes in each stream partition that a stage reads, added up for streams of the same partition count.

    `opaque` are the partition counts that the number of tasks must divide. The bytes of exchanges are `moved`:
    an exchange has as many partitions as its tasks need. Where `whole` is set, no keys are kept together, so
    that each stream partition may have a task of its own.
    """

    sizes: Mapping[int, tuple[int, ...]]
    opaque: frozenset[int] = frozenset()
    moved: int = 0
    whole: tuple[int, ...] | None = None

    @classmethod
    def of(cls, plan: Plan, stage: Stage) -> Workload:
        """The workload of a stage. The size of state, and of results and exchanges not yet written, counts nothing."""
        added: dict[int, list[int]] = {}
        streams = stage.streams
        for stream in streams:
            count = stream.placement.partitions
            total = added.setdefault(count, [0] * count)
            for part in plan.stream(stream.name).partitions:
                if stream.only is None or part.partition in stream.only:
                    total[part.partition % count] += part.bytes
        feeding = {source.name for source in stage.inputs if isinstance(source, ExchangeInput)}
        return cls(
            {count: tuple(parts) for count, parts in sorted(added.items())},
            frozenset(stream.placement.partitions for stream in streams if stream.placement.hash == OPAQUE),
            sum(traffic(plan, exchange).bytes or 0 for exchange in plan.exchanges if exchange.name in feeding),
            _whole(plan, stage),
        )

    def allows(self, tasks: int) -> bool:
        """Whether the planner would take this number of tasks: unknown hashes cannot be filtered."""
        return self._deals(tasks) or all(count % tasks == 0 for count in self.opaque)

    def filtered(self, tasks: int) -> bool:
        """Whether tasks have to leave out records of other tasks."""
        return any(count % tasks for count in self.sizes) and not self._deals(tasks)

    def load(self, tasks: int) -> Load:
        """What each task has to do under the coset rule, keys being spread evenly in each stream partition.

        Four partitions of 100 bytes. Eight tasks keep half of what they read:

        >>> four = Workload({4: (100,) * 4})
        >>> [float(four.load(tasks).mean) for tasks in (2, 4, 8)]
        [200.0, 100.0, 71.5]
        """
        if self.whole is not None and self._deals(tasks):
            dealt = [sum(self.whole[task::tasks]) for task in range(tasks)]
            return Load(Fraction(sum(dealt), tasks), Fraction(max(dealt)))
        # Tasks that are equal modulo each gcd read the same partitions.
        steps = {count: gcd(count, tasks) for count in self.sizes}
        period = lcm(*steps.values())
        weights = {count: step * (1 - LEFT) + tasks * LEFT for count, step in steps.items()}
        work = [
            sum((weights[count] * self._read(count, step)[task % step] for count, step in steps.items()), self.moved)
            for task in range(period)
        ]
        return Load(Fraction(sum(work), period * tasks), Fraction(max(work), tasks))

    def _deals(self, tasks: int) -> bool:
        """Whether the planner deals whole stream partitions to so many tasks."""
        return self.whole is not None and tasks < len(self.whole)

    def whole_load(self) -> Load:
        """The work of each task if each stream partition has one task."""
        assert self.whole is not None
        return Load(Fraction(sum(self.whole), len(self.whole)), Fraction(max(self.whole)))

    @cached_property
    def _sums(self) -> dict[tuple[int, int], Sequence[int]]:
        return {}

    def _read(self, count: int, step: int) -> Sequence[int]:
        """The bytes in the partitions that are equal modulo `step`."""
        if (count, step) not in self._sums:
            self._sums[count, step] = [sum(self.sizes[count][first::step]) for first in range(step)]
        return self._sums[count, step]


def _whole(plan: Plan, stage: Stage) -> tuple[int, ...] | None:
    # Rows that a later stage reads where they were made must lie by key.
    left = {source.step for other in plan.stages for source in other.inputs if isinstance(source, ResultInput)}
    keeps = any(step.keyed or step.name in left for step in stage.steps)
    if keeps or len(stage.streams) < len(stage.inputs):
        return None
    return tuple(part.bytes for read in stage.streams for part in plan.stream(read.name).partitions)


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
