"""Grouping: tasks into task groups that read about the same number of bytes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioning.errors import Finding, Refused
from partitioning.plan import Plan, TaskGroup, TaskMove, TaskRef


@dataclass(frozen=True, slots=True)
class SizedTask:
    """A task to be grouped: what it is estimated to read, and of which inputs which partitions."""

    task: TaskRef
    bytes: int
    records: int
    reads: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Locality:
    """Where groups and tasks ran last: location by group number, location by task."""

    groups: Mapping[int, str]
    tasks: Mapping[TaskRef, str]


@dataclass(frozen=True, slots=True)
class Grouping:
    """Tasks dealt to groups, and which of them moved since the last plan, each with a reason."""

    groups: tuple[TaskGroup, ...]
    moves: tuple[TaskMove, ...] = ()


def grouped(
    tasks: Sequence[SizedTask],
    grouper: str,
    groups: int,
    *,
    wave: int = 0,
    first: int = 0,
    previous: Plan | None = None,
    locality: Locality | None = None,
) -> Grouping:
    """Deal the tasks of one wave to `groups` task groups, numbered from `first`, by the named grouper."""
    sizes = {each.task: (each.bytes, each.records) for each in tasks}
    return Grouping(balanced(sizes, groups, list(sizes)))


def balanced(sizes: Mapping[TaskRef, tuple[int, int]], groups: int, order: Sequence[TaskRef]) -> tuple[TaskGroup, ...]:
    """Deal tasks, largest first, each to the group with the fewest bytes so far (ties: lowest number).

    Groups are numbered by their first task. `sizes` gives bytes and records of each task, `order` breaks ties
    between equal tasks. There are never more groups than tasks. Longest-processing-time rule (Graham 1969): at
    most 4/3 of the best maximum.

    >>> tasks = [TaskRef("views", number) for number in range(4)]
    >>> sizes = dict(zip(tasks, [(70, 7), (10, 1), (40, 4), (30, 3)]))
    >>> for group in balanced(sizes, 2, tasks): print(group.group, [str(t) for t in group.tasks], group.bytes)
    0 ['views/0', 'views/1'] 80
    1 ['views/2', 'views/3'] 70

    Raises Refused if `groups` is below 1.
    """
    if groups < 1:
        raise Refused(Finding(f"{groups} task groups asked for", "groups", "ask for 1 or more"))
    place = {task: position for position, task in enumerate(order)}
    dealt: list[list[TaskRef]] = [[] for _ in range(min(groups, len(order)))]
    loads = [(0, group) for group in range(len(dealt))]
    for task in sorted(order, key=lambda task: (-sizes[task][0], place[task])):
        load, group = min(loads)
        dealt[group].append(task)
        # A task without bytes still takes a slot, so that empty tasks spread out too.
        loads[group] = (load + max(sizes[task][0], 1), group)
    return tuple(
        TaskGroup(
            number,
            tuple(sorted(tasks, key=place.__getitem__)),
            sum(sizes[task][0] for task in tasks),
            sum(sizes[task][1] for task in tasks),
        )
        for number, tasks in enumerate(sorted(dealt, key=lambda tasks: min(map(place.__getitem__, tasks))))
    )
