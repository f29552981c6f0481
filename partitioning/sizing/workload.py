"""Workload: how much each task of a stage has to do under any number of tasks, from the sizes of what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, Stage
from partitioning.model.stage_inputs import ExchangeInput, ResultInput
from partitioning.sizing.traffic import traffic
from partitioning.values import Value

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
