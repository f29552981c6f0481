"""The built-in groupers: round robin, and balanced with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.balance import Balance, largest_first
from partitioning.planning.groups.deal import Deal, Wishes
from partitioning.planning.groups.grouping import Dealt, SizedTask
from partitioning.planning.groups.sharing import families


def round_robin(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Dealt:
    """Task i to group i mod n, in the plan's order; sizes, former groups and locations do not matter."""
    return Dealt({each.task: groups[place % len(groups)] for place, each in enumerate(tasks)})


def balanced_sticky(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Dealt:
    """Few moves within a balance: of bytes, else of records if no bytes are known, else of tasks.

    No group holds more than 1.1 times the mean or, if that is more, than the heaviest group of a fresh deal,
    largest task first; none holds less than 0.9 times the mean or, if that is less, than the lightest of that
    deal. A task stays in its group unless that left, is no longer where the task ran, or would miss the balance.
    If it cannot stay it goes where it ran last, else to those that read the same partitions, else to the
    lightest group. No single move can be undone without missing the balance. Tasks of one size change groups as
    seldom as can be; others nearly so, and never more often than under a fresh deal whose groups get the numbers
    from which most of their tasks come.
    """
    unit, weights = _weights(tasks)
    balance = Balance.of(weights, len(groups))
    wishes = _wishes(tasks, weights, balance, groups, before, locality)
    deal = _few_moves(weights, balance, wishes)
    numbers = _numbers(deal, wishes, groups)
    now = {each.task: numbers[group] for each, group in zip(tasks, deal.groups, strict=True) if group is not None}
    held: Counter[int] = Counter()
    for each, weight in zip(tasks, weights, strict=True):
        if each.task in before:
            held[before[each.task]] += weight
    facts = _Facts(set(groups), set(before.values()), set(wishes.sites), locality, balance, unit, held)
    return Dealt(
        now, {task: facts.why(task, before[task], to) for task, to in now.items() if before.get(task, to) != to}
    )


def _weights(tasks: Sequence[SizedTask]) -> tuple[str, list[int]]:
    """What is balanced, and how much of it each task has: at least 1, so that empty tasks spread out too."""
    for unit, sizes in (("bytes", [each.bytes for each in tasks]), ("records", [each.records for each in tasks])):
        if any(sizes):
            return unit, [max(size, 1) for size in sizes]
    return "tasks", [1] * len(tasks)


def _wishes(
    tasks: Sequence[SizedTask],
    weights: Sequence[int],
    balance: Balance,
    groups: Sequence[int],
    before: Mapping[TaskRef, int],
    locality: Locality,
) -> Wishes:
    sites = [locality.groups.get(number) for number in groups]
    present = set(sites)
    index = {number: position for position, number in enumerate(groups)}
    homes, places = [], []
    for each in tasks:
        place = locality.tasks.get(each.task)
        places.append(place if place in present else None)
        home = index.get(before[each.task]) if each.task in before else None
        # A group that is elsewhere now is no home if another one is where the task ran.
        elsewhere = home is not None and places[-1] is not None and sites[home] not in (None, place)
        homes.append(None if elsewhere else home)
    return Wishes(homes, places, sites, families([each.reads for each in tasks], weights, balance))


def _few_moves(weights: Sequence[int], balance: Balance, wishes: Wishes) -> Deal:
    """The better of two deals: from where the tasks are, and a fresh one numbered after where they are."""
    deal = Deal(weights, balance, wishes)
    deal.settle()
    if deal.keeps_balance() and deal.cost() == (0, 0):
        return deal
    fresh = Deal(weights, balance, wishes)
    fresh.adopt(largest_first(weights, len(wishes.sites)))
    return min((each for each in (deal, fresh) if each.keeps_balance()), key=Deal.cost)


def _numbers(deal: Deal, wishes: Wishes, groups: Sequence[int]) -> list[int]:
    """The number of each group. Those that nothing ties to their number are numbered by their first tasks."""
    first = {group: task for task, group in reversed(list(enumerate(deal.groups))) if group is not None}
    bound = set(wishes.homes)
    free = [group for group, site in enumerate(wishes.sites) if site is None and group not in bound]
    numbers = list(groups)
    for group, place in zip(sorted(free, key=first.__getitem__), free, strict=True):
        numbers[group] = groups[place]
    return numbers


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a move is explained by: the groups there are and were, the locations of those there are, and what
    each would hold (`held`) if every task had stayed.
    """

    groups: Set[int]
    former: Set[int]
    sites: Set[str | None]
    locality: Locality
    balance: Balance
    unit: str
    held: Counter[int]

    def why(self, task: TaskRef, before: int, now: int) -> str:
        """Why a task moved, in words."""
        place, site = self.locality.tasks.get(task), self.locality.groups.get(before)
        if before not in self.groups:
            return f"group {before} left" + self._where(place, now)
        if place is not None and place == self.locality.groups.get(now) and site not in (None, place):
            return f"group {before} is at {site} now" + self._where(place, now)
        if self.held[before] > self.balance.most:
            return f"group {before} would hold {self.held[before]:,} {self.unit}, {self._bounds()}"
        if now not in self.former:
            return f"group {now} joined"
        if self.held[now] < self.balance.least:
            return f"group {now} would hold {self.held[now]:,} {self.unit}, {self._bounds()}"
        return f"it makes room: {self._bounds()}"

    def _bounds(self) -> str:
        balance = self.balance
        return f"{balance.least:,} to {balance.most:,} are balanced (mean {balance.mean:,})"

    def _where(self, place: str | None, now: int) -> str:
        if place is None:
            return ""
        if place == self.locality.groups.get(now):
            return f", and group {now} is at its location {place}"
        if place in self.sites:
            return f", and the groups at its location {place} are full"
        return f", and its location {place} has no group now"
