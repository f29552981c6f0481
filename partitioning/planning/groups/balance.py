"""Balance: how much a task group may weigh compared with the others. Tasks and groups are positions here."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from partitioning.values import Value


class Balance(Value, frozen=True):
    """What a group may weigh: from `least` to `most`, both included; `mean` is the mean, rounded down.

    A fresh packing, largest task first, keeps it; so does any within a tenth of the mean.
    """

    least: int
    mean: int
    most: int

    @classmethod
    def of(cls, weights: Sequence[int], groups: int) -> Balance:
        """The balance for these weights, each at least 1, in this number of groups, at most one for each task.

        >>> Balance.of([1] * 100, 10), Balance.of([7, 5, 4, 1], 2), Balance.of([80, 12, 9, 9], 3)
        (Balance(least=9, mean=10, most=11), Balance(least=8, mean=8, most=9), Balance(least=11, mean=36, most=80))
        """
        loads = [0] * groups
        for task, group in enumerate(largest_first(weights, groups)):
            loads[group] += weights[task]
        total = sum(weights)
        return cls(-(-9 * min(loads) // 10), total // groups, max(*loads, 11 * total // (10 * groups)))


def largest_first(weights: Sequence[int], groups: int) -> list[int]:
    """The group of each task: the largest first, each to the lightest group, to the lower number at a tie.

    The heaviest group has at most 4/3 of the best possible maximum (Graham 1969).

    >>> largest_first([70, 10, 40, 30], 2)
    [0, 0, 1, 1]
    """
    packed = [0] * len(weights)
    loads = [(0, group) for group in range(groups)]
    for task in sorted(range(len(weights)), key=lambda task: -weights[task]):
        load, group = loads[0]
        packed[task] = group
        heapq.heapreplace(loads, (load + weights[task], group))
    return packed
