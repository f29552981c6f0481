"""A deal: tasks put into task groups one by one, with few moves, within a balance.

Tasks and groups are numbered from 0 here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioning.planning.groups.balance import Balance


@dataclass(frozen=True, slots=True)
class Wishes:
    """Where tasks should be.

    `homes` are the groups that tasks were in last, `places` the locations where they ran last, `sites` the
    locations of the groups; None stands for unknown, for a group that left and for a location that no group has.
    `families` are tasks that read the same partitions; each task is in one of them.
    """

    homes: Sequence[int | None]
    places: Sequence[str | None]
    sites: Sequence[str | None]
    families: Sequence[Sequence[int]]


class Deal:
    """A deal while it is made: `groups` holds the group of each task, `loads` the weight of each group."""

    def __init__(self, weights: Sequence[int], balance: Balance, wishes: Wishes) -> None:
        self.groups: list[int | None] = [None] * len(weights)
        self.loads = [0] * len(wishes.sites)
        self._lacking = balance.least * len(self.loads)
        self._weights = weights
        self._balance = balance
        self._wishes = wishes
        self._family = {task: number for number, family in enumerate(wishes.families) for task in family}
        self._order = {task: place for place, task in enumerate(self._family)}
        self._members: list[set[int]] = [set() for _ in self.loads]
        self._relatives: list[Counter[int]] = [Counter() for _ in wishes.families]
        # The groups by load, all of them under None, else those of a location; entries of former loads are skipped.
        self._by_load: dict[str | None, list[tuple[int, int]]] = {None: []}
        for group, site in enumerate(wishes.sites):
            for where in dict.fromkeys((None, site)):
                self._by_load.setdefault(where, []).append((0, group))

    def put(self, task: int, group: int | None) -> None:
        """Put a task into a group, out of the one that it is in; with None only out of it."""
        before, self.groups[task] = self.groups[task], group
        for each, sign in ((before, -1), (group, 1)):
            if each is not None:
                self._members[each] ^= {task}
                self._lacking -= self._balance.lacks(self.loads[each])
                self.loads[each] += sign * self._weights[task]
                self._lacking += self._balance.lacks(self.loads[each])
                self._relatives[self._family[task]][each] += sign
                for where in dict.fromkeys((None, self._wishes.sites[each])):
                    heapq.heappush(self._by_load[where], (self.loads[each], each))

    def keeps_balance(self) -> bool:
        """Whether every task has a group, and every group weighs what it may."""
        return (
            None not in self.groups and self._balance.least <= min(self.loads) <= max(self.loads) <= self._balance.most
        )

    def cost(self) -> tuple[int, int]:
        """How many tasks are in another group than last, and how many are away from where they ran last."""
        changed = sum(home not in (None, now) for home, now in zip(self._wishes.homes, self.groups, strict=True))
        return changed, sum(map(self._is_away, range(len(self.groups))))

    def settle(self) -> None:
        """Put tasks into groups: home if they can stay there, else where they ran last, else with their family.

        It may end out of balance, or leave a task without a group where it would not fit.
        """
        for task, home in enumerate(self._wishes.homes):
            if home is not None:
                self.put(task, home)
        self._shed()
        self._place()
        self._fill()
        self._send_back()

    def adopt(self, piles: Sequence[int]) -> None:
        """Take over the deal that `piles` gives, a pile for each task; a pile goes where most of its tasks were."""
        came = Counter((pile, home) for pile, home in zip(piles, self._wishes.homes, strict=True) if home is not None)
        groups: dict[int, int] = {}
        taken: set[int] = set()
        for (pile, home), _ in sorted(came.items(), key=lambda item: (-item[1], item[0])):
            if pile not in groups and home not in taken:
                groups[pile] = home
                taken.add(home)
        free = iter(sorted(set(range(len(self.loads))) - taken))
        for task, pile in enumerate(piles):
            if pile not in groups:
                groups[pile] = next(free)
            self.put(task, groups[pile])
        self._send_back()

    def _send_back(self) -> None:
        """Undo every move that the balance does not need; a task without a group is left so."""
        moved = True
        while moved:
            moved = False
            for task, now in enumerate(self.groups):
                better = next((group for group in self._better(task) if self._may_move(task, now, group)), None)
                if better is not None:
                    self.put(task, better)
                    moved = True

    def _better(self, task: int) -> Iterator[int]:
        home = self._wishes.homes[task]
        if home is not None and home != self.groups[task]:
            yield home
        if self._wishes.places[task] is not None and self._is_away(task):
            yield self._lightest(self._wishes.places[task])

    def _may_move(self, task: int, now: int | None, group: int) -> bool:
        weight = self._weights[task]
        keeps = now is None or self.loads[now] - weight >= self._balance.least
        return keeps and self.loads[group] + weight <= self._balance.most

    def _is_away(self, task: int) -> bool:
        home, now = self._wishes.homes[task], self.groups[task]
        if now is None or now == home:
            return False
        place = self._wishes.places[task]
        return home is not None if place is None else self._wishes.sites[now] != place

    def _lightest(self, where: str | None = None) -> int:
        """The lightest of all groups, or of those at a location."""
        heap = self._by_load[where]
        while heap[0][0] != self.loads[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0][1]

    def _by_weight(self, group: int) -> list[int]:
        """The tasks of a group, lightest first; of one weight relatives are side by side, those not at home last."""
        homes = self._wishes.homes
        return sorted(
            self._members[group], key=lambda task: (self._weights[task], homes[task] != group, self._order[task])
        )

    def _shed(self) -> None:
        """Take tasks out of each group that is too heavy."""
        for group, load in enumerate(self.loads):
            if load > self._balance.most:
                self._take_out(group, self._by_weight(group), self._balance.most)

    def _take_out(self, group: int, tasks: list[int], most: int) -> None:
        """Take as few of these tasks, lightest first, out of the group as leave it at `most`, if they can."""
        weights = [self._weights[task] for task in tasks]
        while tasks and (excess := self.loads[group] - most) > 0:
            spare = bisect_right(weights, self.loads[group] - self._balance.least)
            index = _pick(weights, excess, spare or len(weights))
            del weights[index]
            self.put(tasks.pop(index), None)

    def _place(self) -> None:
        """Put the tasks without a group into one, heaviest families first.

        A family that fits nowhere is halved. Those that go where they ran last come before all others.
        """
        units = [self._unit(tasks, self._wishes.places[tasks[0]]) for tasks in self._homeless()]
        heapq.heapify(units)
        left = -sum(negative for _, negative, _, _ in units)
        while units:
            elsewhere, negative, _, tasks = heapq.heappop(units)
            place = None if elsewhere else self._wishes.places[tasks[0]]
            group = self._group_for(tasks, place, -negative, left + negative)
            if group is not None:
                left += negative
                for task in tasks:
                    self.put(task, group)
            elif len(tasks) > 1:
                heapq.heappush(units, self._unit(tasks[: len(tasks) // 2], place))
                heapq.heappush(units, self._unit(tasks[len(tasks) // 2 :], place))
            elif place is not None:
                heapq.heappush(units, self._unit(tasks, None))
            else:
                for task in self._force(tasks[0]):
                    left += self._weights[task]
                    heapq.heappush(units, self._unit([task], None))
                left += negative

    def _force(self, task: int) -> list[int]:
        """Put a task where it does not fit, into the lightest group; the lighter tasks that give way to it."""
        group = self._lightest()
        weight = self._weights[task]
        lighter = [each for each in self._by_weight(group) if self._weights[each] < weight]
        self._take_out(group, list(lighter), self._balance.most - weight)
        self.put(task, group)
        return [each for each in lighter if self.groups[each] is None]

    def _unit(self, tasks: list[int], place: str | None) -> tuple[bool, int, int, list[int]]:
        return place is None, -sum(self._weights[task] for task in tasks), min(tasks), tasks

    def _homeless(self) -> Iterator[list[int]]:
        """The tasks without a group, by family and by the location where they ran last."""
        for family in self._wishes.families:
            by_place: dict[str | None, list[int]] = {}
            for task in family:
                if self.groups[task] is None:
                    by_place.setdefault(self._wishes.places[task], []).append(task)
            yield from by_place.values()

    def _group_for(self, tasks: list[int], place: str | None, weight: int, left: int) -> int | None:
        """The group for these tasks: with relatives, else the lightest; at the place unless that is None.

        None if they do not fit, or if too little would be left for the groups that are too light; `left` is the
        weight that waits for a group besides. A single task at no place need only fit.
        """
        related = [
            group
            for group, count in self._relatives[self._family[tasks[0]]].items()
            if count and (place is None or self._wishes.sites[group] == place)
        ]
        lightest = self._lightest(place)
        for group in (*sorted(related, key=lambda group: (self.loads[group], group))[:1], lightest):
            if self._takes(group, weight, left):
                return group
        single = place is None and len(tasks) == 1 and self.loads[lightest] + weight <= self._balance.most
        return lightest if single else None

    def _takes(self, group: int, weight: int, left: int) -> bool:
        """Whether the group is not too heavy then, and enough is left for those that are still too light."""
        before = self.loads[group]
        lacking = self._lacking - self._balance.lacks(before) + self._balance.lacks(before + weight)
        return before + weight <= self._balance.most and lacking <= left

    def _fill(self) -> None:
        """Pull tasks, as few as will do, into each group that is too light, out of those that can spare them."""
        members: dict[int, tuple[list[int], list[int]]] = {}
        for group, load in enumerate(self.loads):
            if load < self._balance.least:
                self._pull(group, members)

    def _pull(self, group: int, members: dict[int, tuple[list[int], list[int]]]) -> None:
        site = self._wishes.sites[group]
        givers = [
            (site is None or self._wishes.sites[each] != site, -load, each)
            for each, load in enumerate(self.loads)
            if load > self._balance.least
        ]
        heapq.heapify(givers)
        while givers and (lacks := self._balance.least - self.loads[group]) > 0:
            far, _, giver = heapq.heappop(givers)
            if giver not in members:
                tasks = self._by_weight(giver)
                members[giver] = tasks, [self._weights[task] for task in tasks]
            tasks, weights = members[giver]
            fitting = bisect_right(
                weights, min(self._balance.most - self.loads[group], self.loads[giver] - self._balance.least)
            )
            if fitting:
                index = _pick(weights, lacks, fitting)
                del weights[index]
                self.put(tasks.pop(index), group)
                heapq.heappush(givers, (far, -self.loads[giver], giver))


def _pick(weights: Sequence[int], needed: int, among: int) -> int:
    """Of the first weights, ascending, the last of those that just suffice, or else of the largest.

    >>> _pick([1, 2, 2, 3], 2, 4), _pick([1, 2, 2, 3], 9, 3)
    (2, 2)
    """
    index = min(bisect_left(weights, needed, 0, among), among - 1)
    return bisect_right(weights, weights[index], 0, among) - 1
