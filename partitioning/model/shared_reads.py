"""Shared reads: tasks of a group that read the same partition, so that one pass serves all."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UnsetType

from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, TaskGroup, TaskRef

# A stage, its input, a partition, and the offsets if a task does not read all, of this or of another input.
_Read = tuple[str, str, int, Span | None, str | UnsetType]


def read_together(plan: Plan, group: TaskGroup) -> tuple[tuple[TaskRef, ...], ...]:
    """The tasks of a group, partitioned into those that share reads, directly or through others.

    All are of one stage. Both levels keep the order of the group.
    """
    companies: dict[_Read, int] = {}
    joined = list(range(len(group.tasks)))

    def root(number: int) -> int:
        while joined[number] != number:
            joined[number] = joined[joined[number]]
            number = joined[number]
        return number

    for number, task in enumerate(group.tasks):
        for partition in _partitions(plan, task):
            other = companies.setdefault(partition, number)
            first, second = sorted((root(number), root(other)))
            joined[second] = first
    members: dict[int, list[TaskRef]] = {}
    for number, task in enumerate(group.tasks):
        members.setdefault(root(number), []).append(task)
    return tuple(map(tuple, members.values()))


def _partitions(plan: Plan, ref: TaskRef) -> Iterator[_Read]:
    task = plan.task(ref)
    for name, numbers in task.reads.items():
        for number in numbers:
            # Ranges of one partition have no record in common, so their tasks have no pass in common.
            yield ref.stage, name, number, task.span, task.ranged
