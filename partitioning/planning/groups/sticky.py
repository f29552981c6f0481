"""Sticky groups: tasks stay in the group that they were in as far as the balance allows.

Tasks and groups are numbered from 0 here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from partitioning.planning.groups.balance import Balance, largest_first
from partitioning.planning.groups.packing import Packing, Preferences


def sticky(weights: Sequence[int], balance: Balance, preferences: Preferences) -> list[int]:
    """The group of each task, within the balance.

    Most tasks stay in the group of the last batch. If a fresh packing, numbered after those groups, moves fewer tasks,
    that is taken.
    """
    packing = Packing(weights, balance, preferences)
    packing.settle()
    if not packing.is_balanced or packing.moves:
        fresh = Packing(weights, balance, preferences)
        fresh.start(numbered_after(preferences.homes, largest_first(weights, len(preferences.sites))))
        if not packing.is_balanced or fresh.moves < packing.moves:
            packing = fresh
    packing.send_back()
    return [packing.groups[task] for task in range(len(weights))]


def numbered_after(homes: Sequence[int | None], groups: Sequence[int]) -> list[int]:
    """The groups with other numbers: each, if it can, with that from which most of its tasks come.

    >>> numbered_after([2, 2, 0, None, 2], [0, 0, 1, 2, 1])
    [2, 2, 0, 1, 0]
    """
    numbers: dict[int, int] = {}
    came = Counter((group, home) for group, home in zip(groups, homes, strict=True) if home is not None)
    free = dict.fromkeys(sorted(set(groups)))
    for (group, home), _ in came.most_common():
        if group not in numbers and home in free:
            numbers[group] = home
            del free[home]
    rest = (group for group in sorted(set(groups)) if group not in numbers)
    numbers.update(zip(rest, free, strict=True))
    return [numbers[group] for group in groups]
