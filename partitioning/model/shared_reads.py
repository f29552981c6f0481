"""Shared reads: tasks of a group that read the same partition, so that one pass serves all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UnsetType

from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.takes import Task

# A stage, its input, a partition, and the offsets if a task does not read all, of this or of another input.
_Read = tuple[str, str, int, Span | None, str | UnsetType]


def read_together(plan: Plan, group: TaskGroup) -> tuple[tuple[TaskRef, ...], ...]:
    """The tasks of a group, partitioned into those that share reads, directly or through others.

    All are of one stage. Both levels keep the order of the group.
    """
    found = companies([(ref.stage, plan.task(ref)) for ref in group.tasks])
    return tuple(tuple(group.tasks[number] for number in numbers) for numbers in found)


def companies(tasks: Sequence[tuple[str, Task]]) -> Sequence[Sequence[int]]:
    """The numbers of these tasks, each with its stage, partitioned into those that share reads. Both levels ascend.

    >>> companies([("a", Task(0, {"views": (0,)})), ("a", Task(1, {"views": (1,)})), ("a", Task(2, {"views": (0,)}))])
    [[0, 2], [1]]
    """
    first_of: dict[_Read, int] = {}
    joined = list(range(len(tasks)))

    def root(number: int) -> int:
        while joined[number] != number:
            joined[number] = joined[joined[number]]
            number = joined[number]
        return number

    for number, (stage, task) in enumerate(tasks):
        for read in _reads(stage, task):
            other = first_of.setdefault(read, number)
            first, second = sorted((root(number), root(other)))
            joined[second] = first
    members: dict[int, list[int]] = {}
    for number in range(len(tasks)):
        members.setdefault(root(number), []).append(number)
    return list(members.values())


def _reads(stage: str, task: Task) -> Iterator[_Read]:
    for name, numbers in task.reads.items():
        for number in numbers:
            # Ranges of one partition have no record in common, so their tasks have no pass in common.
            yield stage, name, number, task.span, task.ranged
