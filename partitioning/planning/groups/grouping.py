"""Grouping: tasks into task groups, by a grouper that knows where they were and ran last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import field

from partitioning.errors import Finding, Refused, refuse
from partitioning.imports import called, imported, is_import_path
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, TaskGroup, TaskMove, TaskRef
from partitioning.model.reasons import GroupLeft, LocationUnknown, MoveReason, OtherWave, PutBy
from partitioning.model.statistics import Locality
from partitioning.values import Value

BUILT_IN = {
    "balanced-sticky": "partitioning.planning.groups.built_in:balanced_sticky",
    "round-robin": "partitioning.planning.groups.built_in:round_robin",
}


class SizedTask(Value, frozen=True):
    """A task to be grouped: how much it is estimated to read, and which partitions of which inputs.

    A task that reads a range of a partition shares the range with no other task, and names no partition.
    """

    task: TaskRef
    bytes: int
    records: int
    reads: Mapping[str, tuple[int, ...]]


class Grouped(Value, frozen=True):
    """A grouper's answer: the group of each task, and reasons for tasks that changed theirs.

    `Said` is a reason in words of its own.
    """

    groups: Mapping[TaskRef, int]
    why: Mapping[TaskRef, MoveReason] = field(default_factory=dict)


class Grouper(Protocol):
    """Puts tasks into groups: a pure function, named by its import path if it is a user's own."""

    def __call__(
        self, tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
    ) -> Grouped:
        """Assign each of `tasks`, in the plan's order, to one of `groups`, so that no group is empty.

        There is at least one task, and never more groups than tasks. `before` holds the group of each task in the last
        plan; a group that no longer exists is not among `groups`. `locality` uses the same group numbers.
        """


class Grouping(Value, frozen=True):
    """Tasks in groups, and which of them moved since the last plan, each with a reason."""

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
    """Put the tasks of one wave into `groups` task groups, or into one each if there are fewer tasks.

    `grouper` is a built-in name or an import path. A group is the same as one of the `previous` plan if it has
    the same rank in its wave; here they are numbered from `first`. `locality` is that of the previous plan.

    >>> tasks = [SizedTask(TaskRef("views", number), size, 1, {}) for number, size in enumerate([70, 10, 40, 30])]
    >>> for group in grouped(tasks, "balanced-sticky", 2).groups: print(group.group, [str(t) for t in group.tasks])
    0 ['views/0', 'views/1']
    1 ['views/2', 'views/3']

    Raises Refused if `groups` is below 1, for a grouper that is not there, and, with all findings, if its answer
    is not one group for each task and a task for each group.
    """
    if groups < 1:
        raise Refused.of(Kind.SETTING, f"{groups} task groups asked for", "groups", "ask for 1 or more", groups=groups)
    if not tasks:
        return Grouping(())
    numbers = range(first, first + min(groups, len(tasks)))
    former = previous.groups if previous else ()
    last = {task: group.group for group in former for task in group.tasks}
    ranked = [group.group for group in former if group.wave == wave]
    renumbered = {number: first + rank for rank, number in enumerate(ranked)}
    before = {task: renumbered[number] for task, number in last.items() if number in renumbered}
    known = locality or Locality()
    sites = {renumbered[number]: site for number, site in known.groups.items() if number in renumbered}
    answer = _answer(tasks, grouper, numbers, before, Locality(sites, known.tasks))
    members: dict[int, list[SizedTask]] = {number: [] for number in numbers}
    for sized in tasks:
        members[answer.groups[sized.task]].append(sized)
    return Grouping(
        tuple(_group(number, members[number], sites.get(number), wave) for number in numbers),
        tuple(
            TaskMove(task, last[task], now, _why(task, before, numbers, answer, grouper))
            for task, now in ((sized.task, answer.groups[sized.task]) for sized in tasks)
            if task in last and before.get(task) != now
        ),
    )


def _group(number: int, tasks: Sequence[SizedTask], location: str | None, wave: int) -> TaskGroup:
    size, records = sum(task.bytes for task in tasks), sum(task.records for task in tasks)
    return TaskGroup(number, tuple(task.task for task in tasks), size, records, location, wave)


def _why(
    task: TaskRef, before: Mapping[TaskRef, int], groups: Sequence[int], answer: Grouped, grouper: str
) -> MoveReason:
    if task not in before:
        return OtherWave()
    left = before[task] not in groups
    return answer.why.get(task, GroupLeft(before[task], LocationUnknown()) if left else PutBy(grouper))


def _answer(
    tasks: Sequence[SizedTask], grouper: str, groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """The checked answer of the grouper."""
    where = f"grouper {grouper!r}"
    if grouper not in BUILT_IN and not is_import_path(grouper):
        listed = ", ".join(sorted(BUILT_IN))
        then = f"use {listed} or an import path: package.module:name"
        raise Refused.of(Kind.NAME, "there is no such grouper", where, then, grouper=grouper)
    function = imported(BUILT_IN.get(grouper, grouper), where)
    with called(Kind.GROUPER, "it", where, "correct the grouper"):
        answer = function(tasks, groups, before, locality)
    refuse(_findings(answer, [sized.task for sized in tasks], groups, where))
    answered: Grouped = answer
    return answered


def _findings(answer: object, tasks: Sequence[TaskRef], groups: Sequence[int], where: str) -> Iterator[Finding]:
    if not isinstance(answer, Grouped):
        then = "return a partitioning.planning.groups.grouping.Grouped"
        yield Finding.of(Kind.GROUPER, f"it answered {type(answer).__name__}", where, then, type=type(answer).__name__)
        return
    used = set(answer.groups.values())
    then = "correct the grouper: each task into one of the given groups, and none left empty"
    for fault, culprits in (
        ("has no group for", [str(task) for task in tasks if task not in answer.groups]),
        (
            "has a group for what is no task of this wave:",
            sorted(str(task) for task in set(answer.groups) - set(tasks)),
        ),
        ("has tasks in groups that are not there:", sorted(map(str, used - set(groups)))),
        ("has no task in group", [str(group) for group in groups if group not in used]),
    ):
        if culprits:
            yield Finding.of(Kind.GROUPER, f"its answer {fault} {', '.join(culprits)}", where, then, culprits=culprits)
    if wordy := sorted(str(task) for task, why in answer.why.items() if not isinstance(why, MoveReason)):
        what = f"its answer has what is no reason for {', '.join(wordy)}"
        then = "give reasons of partitioning.model.reasons: Said(words) for words of your own"
        yield Finding.of(Kind.GROUPER, what, where, then, wordy=wordy)
