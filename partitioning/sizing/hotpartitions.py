"""Hot partitions: stream partitions with so many records that their tasks are heavy, and which scheme spreads them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import AllTogether, BeforeMoving, HotRanges
from partitioning.model.schemes import Scheme, records
from partitioning.values import Value

# A partition is hot from this many times the records of a mean partition of its stream on.
_HOT = 2


class HotPartition(Value, frozen=True):
    """A stream partition that a stage reads as a whole: its `records` are `of_mean` times those of a mean one.

    `scheme` would assign it to tasks of about as many records as a mean partition has, if the stage allows that.
    """

    stage: str
    stream: str
    partition: int
    records: int
    of_mean: Fraction
    scheme: Scheme

    def __str__(self) -> str:
        return f"{self.stream}-{self.partition}"


def hot_partitions(plan: Plan) -> tuple[HotPartition, ...]:
    """The hot partitions of what a plan reads, those first that weigh most in their stream. Tables have none."""
    hot = [partition for stage in plan.stages for partition in _of_stage(plan, stage)]
    return tuple(sorted(hot, key=lambda each: (-each.of_mean, each.stage, each.stream, each.partition)))


def most_records(mean: Fraction) -> int:
    """About the mean number of records, in two digits and not below it.

    >>> [most_records(Fraction(mean)) for mean in (0, 7, 99, 101, 12_345)]
    [1, 7, 99, 110, 13000]
    """
    whole = max(1, -(-mean.numerator // mean.denominator))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return int(-(-whole // unit) * unit)


def _of_stage(plan: Plan, stage: Stage) -> Iterator[HotPartition]:
    if isinstance(stage.why, AllTogether | BeforeMoving | HotRanges):
        # The stage has one task in any case, or serves a changed partition count and cannot be given a scheme.
        return
    in_ranges = {
        (name, number) for task in stage.tasks if task.span for name in task.reads for number in task.reads[name]
    }
    for read in stage.streams:
        stream = plan.stream(read.name)
        counts = {number: stream.partitions[number].records for number in read.numbers}
        mean = Fraction(sum(counts.values()), max(1, len(counts)))
        for number, count in counts.items():
            if not stream.declared.table and (read.name, number) not in in_ranges and count >= _HOT * mean > 0:
                most = records(most_records(mean))
                yield HotPartition(stage.name, read.name, number, count, count / mean, most)
