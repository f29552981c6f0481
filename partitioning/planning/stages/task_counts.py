"""Task counts: how many cosets a stage has, L, from its scheme and from what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.reasons import AllTogether, AsAsked, Dealt, GcdOf, InRanges, OnePerPartition
from partitioning.model.schemes import COGROUP, Scheme, SchemeKind, tasks
from partitioning.numbers import TASKS
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.planning.stages.draft import StageDraft, TaskCount
from partitioning.values import replace

# An exchange that several stages read has as many partitions as serve them all, if that is no more than so many
# times what the largest needs.
MOST_OF_COMMON = 4


def task_count(draft: StageDraft, scheme: Scheme, counts: Sequence[int | None], feeding: Sequence[int]) -> TaskCount:
    """L of a stage whose inputs have these partition counts.

    A count of None stands for an exchange, which gets as many partitions as its reader wants. A stage that reads only
    exchanges goes by the largest stage that feeds it, whose natural counts are `feeding` (Kafka Streams' rule): a
    factor multiplies the tasks of its own stage, and of no later one. Under `records`, L is the number of partitions,
    which `count_ranges` then splits. A stage with a step that needs all records together has one coset, whatever is
    chosen for all stages.

    Raises Refused if more than one task was chosen for such a stage by name, or if there are more tasks than a plan can
    have.
    """
    if together := tuple(step.name for step in draft.steps if gathers(step)):
        return _gathered(draft, together, scheme)
    base = max(feeding, default=1)
    if not scheme.keeps_keys:
        cosets = scheme.tasks([base if count is None else count for count in counts])
        most = scheme.most_records
        return TaskCount(scheme, cosets, OnePerPartition() if most is None else InRanges(cosets, most))
    fixed = tuple(count for count in counts if count is not None)
    cosets = scheme.tasks(fixed or [base])
    if scheme.number is not None:
        TASKS.check(cosets, f"scheme {scheme} of stage {draft.name}")
    asked = scheme.kind is SchemeKind.TASKS
    return TaskCount(scheme, cosets, AsAsked(cosets) if asked else GcdOf(fixed, cosets))


def dealt(count: TaskCount, partitions: Sequence[int], scattered: bool) -> TaskCount:
    """The count of a stage that keeps no keys together, and reads inputs of so many `partitions`.

    Where tasks would have to leave out each other's keys, as fewer than partitions may have to, and all if keys of an
    input are `scattered`, they read whole partitions instead.
    """
    total = sum(partitions)
    fewer = count.cosets < total and any(each % count.cosets for each in partitions)
    if not count.keeps_keys or not (scattered or fewer):
        return count
    cosets = min(count.cosets, total)
    return replace(count, cosets=cosets, why=Dealt(total, cosets))


def _gathered(draft: StageDraft, steps: tuple[str, ...], scheme: Scheme) -> TaskCount:
    if draft.choice.named and scheme not in (COGROUP, tasks(1)):
        who = f"{' and '.join(steps)} {'needs' if len(steps) == 1 else 'need'}"
        what = f"{who} all records in one task, but the scheme is {scheme}"
        raise Refused.of(Kind.SCHEME, what, f"stage {draft.name}", "leave the scheme out", scheme=scheme)
    return TaskCount(tasks(1), 1, AllTogether(steps))


def exchange_count(wanted: Sequence[int]) -> int:
    """How many partitions an exchange has whose readers want these numbers.

    >>> exchange_count([6]), exchange_count([4, 6]), exchange_count([7, 9])
    (6, 12, 9)
    """
    common = lcm(*wanted)
    return common if common <= MOST_OF_COMMON * max(wanted) else max(wanted)
