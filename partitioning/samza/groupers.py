"""Samza's groupers, for people who come from Samza: the same tasks in the same groups as there.

Name them by import path, as `partitioning.samza.groupers:group_by_container_count`. Containers are task groups;
tasks go by the text of their names, so that `views/10` is before `views/2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.grouping import Grouped, SizedTask


def group_by_container_count(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Round robin; after a change of the number of groups only as many tasks move as fit the even sizes.

    The sizes are even by rank: the first groups have the odd tasks. With as many groups as before nothing
    changes, however uneven it is. All is grouped anew if the tasks are not those of before, if the groups of
    before do not have successive numbers, or if there is or was one group only. Raises Refused for more groups
    than tasks.
    """
    names = _names(tasks, groups)
    if len(groups) > len(names):
        what = f"{len(groups)} groups for {len(names)} tasks leave some empty"
        raise Refused.of(Kind.SAMZA, what, "groups", "ask for fewer", groups=len(groups), names=len(names))
    former = sorted(set(before.values()))
    same = set(before) == set(names) and former == list(range(groups[0], groups[0] + len(former)))
    if not same or 1 in (len(former), len(groups)):
        return _round_robin(names, groups)
    return Grouped(before if len(former) == len(groups) else _resized(names, groups, before))


def group_by_container_ids(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Round robin over the groups in the order given, over the lowest numbers if there are more than tasks."""
    names = _names(tasks, groups)
    return _round_robin(names, groups if len(groups) <= len(names) else sorted(groups)[: len(names)])


def _names(tasks: Sequence[SizedTask], groups: Sequence[int]) -> list[TaskRef]:
    if not tasks or not groups:
        what = f"{len(tasks)} tasks for {len(groups)} groups"
        raise Refused.of(Kind.SAMZA, what, "groups", "give at least one of each", tasks=len(tasks), groups=len(groups))
    return sorted((sized.task for sized in tasks), key=lambda task: (task.stage, str(task.task)))


def _round_robin(names: Sequence[TaskRef], groups: Sequence[int]) -> Grouped:
    return Grouped({task: groups[place % len(groups)] for place, task in enumerate(names)})


def _resized(names: Sequence[TaskRef], groups: Sequence[int], before: Mapping[TaskRef, int]) -> dict[TaskRef, int]:
    """Each group gives its last tasks beyond its size; the others take them from the first on."""
    least, odd = divmod(len(names), len(groups))
    sizes = {group: least + (rank < odd) for rank, group in enumerate(groups)}
    members: dict[int, list[TaskRef]] = {group: [] for group in sorted({*groups, *before.values()})}
    for task in names:
        members[before[task]].append(task)
    spare: list[TaskRef] = []
    for group, own_tasks in members.items():
        while len(own_tasks) > sizes.get(group, 0):
            spare.append(own_tasks.pop())
    for group, size in sizes.items():
        while len(members[group]) < size:
            members[group].append(spare.pop(0))
    return {task: group for group in groups for task in members[group]}
