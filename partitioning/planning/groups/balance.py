"""Balance: how much a task group may weigh beside the others. Tasks and groups go by position here."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Balance:
    """What a group may weigh: from `least` to `most`, both included; `mean` is the mean, rounded down.

    A fresh deal, largest task first, keeps it; so does any within a tenth of the mean.
    """

    least: int
    mean: int
    most: int

    @classmethod
    def of(cls, weights: Sequence[int], groups: int) -> Balance:
        """The balance of these weights, each at least 1, in so many groups, which are not more than the tasks.

        >>> Balance.of([1] * 100, 10), Balance.of([7, 5, 4, 1], 2)
        (Balance(least=9, mean=10, most=11), Balance(least=8, mean=8, most=9))
        """
        loads = [0] * groups
        for task, group in enumerate(largest_first(weights, groups)):
            loads[group] += weights[task]
        total = sum(weights)
        least, most = -(-9 * total // (10 * groups)), 11 * total // (10 * groups)
        return cls(min(*loads, least), total // groups, max(*loads, most))

    def lacks(self, load: int) -> int:
        """What a group of this load lacks to be heavy enough."""
        return max(0, self.least - load)


def largest_first(weights: Sequence[int], groups: int) -> list[int]:
    """The group of each task: the largest first, each to the lightest group, to the lower number at a tie.

    The heaviest group has at most 4/3 of the best possible maximum (Graham 1969).

    >>> largest_first([70, 10, 40, 30], 2)
    [0, 0, 1, 1]
    """
    dealt = [0] * len(weights)
    loads = [(0, group) for group in range(groups)]
    for task in sorted(range(len(weights)), key=lambda task: -weights[task]):
        load, group = loads[0]
        dealt[task] = group
        heapq.heapreplace(loads, (load + weights[task], group))
    return dealt
