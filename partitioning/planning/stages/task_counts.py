"""Task counts: how many cosets a stage has, L, from its scheme and from what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from partitioning.cosets.ranges import MOST_RANGES, how_many
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.plan import PlannedPartition
from partitioning.model.reasons import AllTogether, AsAsked, GcdOf, InRanges, OnePerPartition, TaskCountReason
from partitioning.model.schemes import COGROUP, Scheme, SchemeKind, tasks
from partitioning.numbers import TASKS
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.planning.stages.waves import StageOutline
from partitioning.sections import many
from partitioning.values import Value, replace

# An exchange that several stages read has as many partitions as serve them all, if that is no more than so many
# times what the largest needs.
MOST_OF_COMMON = 4


class TaskCount(Value, frozen=True):
    """L of a stage, and why; `natural` is L without the factor of an `elastic` scheme, or the ranges of `records`.

    In a `gathered` stage some step needs all records in one task.
    """

    scheme: Scheme
    cosets: int
    why: TaskCountReason

    @property
    def natural(self) -> int:
        if isinstance(self.why, InRanges):
            return self.why.partitions
        return max(1, self.cosets // self.scheme.factor)

    @property
    def gathered(self) -> bool:
        return isinstance(self.why, AllTogether)


def task_count(
    part: StageOutline, scheme: Scheme, counts: Sequence[int | None], feeding: Sequence[int], *, named: bool
) -> TaskCount:
    """L of a part whose inputs have these partition counts.

    A count of None is that of an exchange, which gets as many partitions as its reader wants. A stage that reads
    only such goes by the largest of the stages that feed it, whose natural counts are `feeding` (Kafka Streams'
    rule): a factor multiplies the tasks of its own stage, and no later one's. Under `records` it is the number of
    partitions, into how many ranges they are dealt is for `with_ranges` to say. A stage in which some step needs all
    records together has one, whatever is chosen for all; `named` says that the scheme was chosen for it.

    Raises Refused if such a stage was given more than one task, and for more tasks than a plan can have.
    """
    if together := tuple(step.name for step in part.steps if gathers(step)):
        return _gathered(part, together, scheme, named=named)
    base = max(feeding, default=1)
    if not scheme.keeps_keys:
        cosets = scheme.tasks([base if count is None else count for count in counts])
        most = scheme.most_records
        return TaskCount(scheme, cosets, OnePerPartition() if most is None else InRanges(cosets, most))
    fixed = tuple(count for count in counts if count is not None)
    cosets = scheme.tasks(fixed or [base])
    if scheme.number is not None:
        TASKS.check(cosets, f"scheme {scheme} of stage {part.name}")
    asked = scheme.kind is SchemeKind.TASKS
    return TaskCount(scheme, cosets, AsAsked(cosets) if asked else GcdOf(fixed, cosets))


def with_ranges(count: TaskCount, read: Sequence[PlannedPartition]) -> TaskCount:
    """The number of tasks under a scheme `records`, if the stage reads these stream partitions.

    Raises Refused if there are more than serve anybody.
    """
    most = count.scheme.most_records
    assert most is not None
    cosets = count.cosets + sum(how_many(partition.start, partition.end, most) - 1 for partition in read)
    if cosets > MOST_RANGES:
        largest = max(partition.records for partition in read)
        what = f"scheme {count.scheme} makes {cosets:,} tasks, more than {MOST_RANGES:,}"
        then = f"allow more records a task: the largest stream partition has {many(largest, 'record')}"
        raise Refused(Finding(Kind.SCHEME, what, "scheme", then, about(scheme=count.scheme, cosets=cosets)))
    return replace(count, cosets=cosets)


def _gathered(part: StageOutline, steps: tuple[str, ...], scheme: Scheme, *, named: bool) -> TaskCount:
    if named and scheme not in (COGROUP, tasks(1)):
        who = f"{' and '.join(steps)} {'needs' if len(steps) == 1 else 'need'}"
        what = f"{who} all records in one task, but the scheme is {scheme}"
        raise Refused(Finding(Kind.SCHEME, what, f"stage {part.name}", "leave the scheme out", about(scheme=scheme)))
    return TaskCount(tasks(1), 1, AllTogether(steps))


def exchange_count(wanted: Sequence[int]) -> int:
    """How many partitions an exchange has whose readers have so many cosets.

    >>> exchange_count([6]), exchange_count([4, 6]), exchange_count([7, 9])
    (6, 12, 9)
    """
    common = lcm(*wanted)
    return common if common <= MOST_OF_COMMON * max(wanted) else max(wanted)
