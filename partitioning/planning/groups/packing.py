"""Packing: tasks put into task groups one by one, where they should be as far as they fit.

Tasks and groups are numbered from 0 here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf

from partitioning.values import Value


class Preferences(Value, frozen=True):
    """Where tasks should be.

    `homes` are the groups that tasks were in last, `places` the locations where they ran last, `sites` the
    locations of the groups; None stands for unknown, for a group that left and for a location that no group has.
    `shared` are the sets of partitions that each task reads together with others, as `co_readers` numbers them.
    """

    homes: Sequence[int | None]
    places: Sequence[str | None]
    sites: Sequence[str | None]
    shared: Sequence[tuple[int, ...]]


class Packing:
    """The group of each task that was put into one, and what each group weighs."""

    def __init__(self, weights: Sequence[int], balance: Balance, preferences: Preferences) -> None:
        self.groups: dict[int, int] = {}
        self.loads = [0] * len(preferences.sites)
        self._weights = weights
        self._balance = balance
        self._preferences = preferences
        self._members: list[set[int]] = [set() for _ in self.loads]
        # For each set of partitions, the group of the reader that was placed last.
        self._latest: dict[int, int] = {}
        # The groups by load: all under None, else those of a location. Entries with outdated loads are skipped.
        self._by_load: dict[str | None, list[tuple[int, int]]] = {None: []}
        for group, site in enumerate(preferences.sites):
            for where in {None, site}:
                self._by_load.setdefault(where, []).append((0, group))

    @property
    def is_balanced(self) -> bool:
        """Whether every group weighs what it may."""
        return self._balance.least <= min(self.loads) and max(self.loads) <= self._balance.most

    @property
    def moves(self) -> int:
        """How many tasks left their home."""
        return sum(self._preferences.homes[task] not in (None, group) for task, group in self.groups.items())

    def start(self, groups: Sequence[int | None]) -> None:
        """Put each task into its group, if it has one."""
        for task, group in enumerate(groups):
            if group is not None:
                self._put(task, group)

    def settle(self) -> None:
        """Keep tasks at home as far as they fit, and put the others where they should be. It may miss the balance."""
        self.start(self._preferences.homes)
        for group in range(len(self.loads)):
            self._shed(group)
        homeless = sorted(self._rank(task) for task in range(len(self._weights)) if task not in self.groups)
        for *_, task in homeless:
            if (near := self._where_it_ran(task)) is not None:
                self._put(task, near)
        waiting = [rank for rank in homeless if rank[-1] not in self.groups]
        while waiting:
            *_, task = heapq.heappop(waiting)
            group = self._group_for(task)
            self._put(task, group)
            # Where it does not fit, lighter tasks make room.
            for lighter in self._shed(group, self._weights[task] - 1):
                heapq.heappush(waiting, self._rank(lighter))
        self._fill()

    def send_back(self) -> None:
        """Put tasks home, or those without one where they ran last, as long as the balance lets any go there."""
        sent = True
        while sent:
            sent = False
            for task, weight in enumerate(self._weights):
                spare = self.loads[self.groups[task]] - self._balance.least
                if weight <= spare and (group := self._better(task)) is not None:
                    self._put(task, group)
                    sent = True

    def _put(self, task: int, group: int | None) -> None:
        """Put a task into a group, out of the one that it is in; with None only out of it."""
        left = self.groups.pop(task, None)
        if left is not None:
            self._members[left].remove(task)
            self._add_load(left, -self._weights[task])
        if group is not None:
            self.groups[task] = group
            self._members[group].add(task)
            self._add_load(group, self._weights[task])
            self._latest.update(dict.fromkeys(self._preferences.shared[task], group))

    def _add_load(self, group: int, weight: int) -> None:
        self.loads[group] += weight
        for where in {None, self._preferences.sites[group]}:
            heapq.heappush(self._by_load[where], (self.loads[group], group))

    def _rank(self, task: int) -> tuple[int, tuple[int, ...], int]:
        """Largest first; of one weight those that read the same side by side."""
        return -self._weights[task], self._preferences.shared[task], task

    def _lightest(self, where: str | None = None) -> int:
        """The lightest of all groups, or of those at a location."""
        by_load = self._by_load[where]
        while by_load[0][0] != self.loads[by_load[0][1]]:
            heapq.heappop(by_load)
        return by_load[0][1]

    def _fits(self, task: int, group: int) -> bool:
        return self.loads[group] + self._weights[task] <= self._balance.most

    def _where_it_ran(self, task: int) -> int | None:
        """The lightest group where a task ran last, if it fits."""
        place = self._preferences.places[task]
        return self._lightest(place) if place is not None and self._fits(task, self._lightest(place)) else None

    def _better(self, task: int) -> int | None:
        """A group where a task fits and belongs, unless it is in one."""
        home = self._preferences.homes[task]
        if self._belongs(task, self.groups[task]):
            return None
        if home is None:
            return self._where_it_ran(task)
        return home if self._fits(task, home) else None

    def _group_for(self, task: int) -> int:
        """The group of a task: where it ran last; else where the last task went that shares most with it; else the
        lightest.

        Tasks that share reads fill their group up to the mean, or only to its minimum while other groups are too light.
        """
        if (near := self._where_it_ran(task)) is not None:
            return near
        lacking = self.loads[self._lightest()] < self._balance.least
        enough = self._balance.least if lacking else self._balance.mean
        for number in reversed(self._preferences.shared[task]):
            group = self._latest.get(number)
            if group is not None and self.loads[group] < enough and self._fits(task, group):
                return group
        return self._lightest()

    def _belongs(self, task: int, group: int) -> bool:
        """Whether a group is the home of a task or, if it has none, is where the task ran last."""
        home, place = self._preferences.homes[task], self._preferences.places[task]
        return group == home if home is not None else place is not None and place == self._preferences.sites[group]

    def _by_weight(self, group: int) -> list[int]:
        """The tasks of a group, lightest first; of one weight those first that do not belong there."""
        return sorted(self._members[group], key=lambda task: (self._weights[task], self._belongs(task, group), -task))

    def _take(self, tasks: list[int], needed: int, most: float) -> int | None:
        """Take one out of these tasks, which are sorted by weight: the lightest that weighs what is needed, else the
        heaviest, among those up to `most`. None if there are none, or if nothing is needed."""
        weight = self._weights.__getitem__
        count = bisect_right(tasks, most, key=weight)
        if needed <= 0 or not count:
            return None
        return tasks.pop(bisect_left(tasks, min(needed, weight(tasks[count - 1])), key=weight))

    def _shed(self, group: int, most: float = inf) -> list[int]:
        """Take tasks, few and none heavier than `most`, out of a group that is too heavy."""
        shed: list[int] = []
        tasks = self._by_weight(group) if self.loads[group] > self._balance.most else []
        while (task := self._take(tasks, self.loads[group] - self._balance.most, most)) is not None:
            self._put(task, None)
            shed.append(task)
        return shed

    def _fill(self) -> None:
        """Pull tasks, few, into groups that are too light, out of the heaviest that can spare them."""
        least = self._balance.least
        if min(self.loads) >= least:
            return
        spare = {group: self._by_weight(group) for group, load in enumerate(self.loads) if load > least}
        givers = [(-self.loads[group], group) for group in spare]
        heapq.heapify(givers)
        while givers and (lacking := least - self.loads[self._lightest()]) > 0:
            _, giver = heapq.heappop(givers)
            task = self._take(spare[giver], lacking, self.loads[giver] - least)
            if task is not None:
                self._put(task, self._lightest())
                heapq.heappush(givers, (-self.loads[giver], giver))


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
