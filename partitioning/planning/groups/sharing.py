"""Sharing: tasks that read the same stream partitions, which a group could read once. Tasks go by position here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.planning.groups.balance import Balance


def families(
    reads: Sequence[Mapping[str, tuple[int, ...]]], weights: Sequence[int], balance: Balance
) -> list[list[int]]:
    """Tasks in families that read the same partitions of some input, each task in one of them.

    No family of several weighs more than a group may; one that would is cut into parts of up to the mean. Those of a
    family who share what the fewest read stand side by side, so that its halves share as much as can be.

    With twice as many tasks as partitions, tasks 0 and 2 read the same, as do 1 and 3:

    >>> families([{"views": (task % 2,)} for task in range(4)], [1, 1, 1, 1], Balance(2, 2, 2))
    [[0, 2], [1, 3]]
    """
    readers: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for task, read in enumerate(reads):
        for item in read.items():
            readers.setdefault(item, []).append(task)
    members = {task: [task] for task in range(len(reads))}
    family = list(range(len(reads)))
    loads = list(weights)
    for tasks in sorted((tasks for tasks in readers.values() if len(tasks) > 1), key=lambda tasks: (len(tasks), tasks)):
        joining = list(dict.fromkeys(family[task] for task in tasks))
        whole = sum(loads[each] for each in joining) <= balance.most
        bound = balance.most if whole else balance.mean
        into = joining[0]
        for each in joining[1:]:
            if loads[into] + loads[each] > bound:
                into = each
                continue
            loads[into] += loads[each]
            for task in members[each]:
                family[task] = into
            members[into] += members.pop(each)
    return list(members.values())
