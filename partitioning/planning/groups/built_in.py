"""The built-in groupers: round robin, and balanced with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from partitioning.model import reasons
from partitioning.model.plan import TaskRef
from partitioning.model.statistics import Locality
from partitioning.planning.groups.grouping import Grouped, SizedTask
from partitioning.planning.groups.packing import Balance, Packing, Preferences, largest_first
from partitioning.values import Value


def round_robin(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Task i to group i mod n, in the plan's order; sizes, former groups and locations do not matter."""
    return Grouped({sized.task: groups[rank % len(groups)] for rank, sized in enumerate(tasks)})


def balanced_sticky(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Few moves within a balance: of bytes, else of records if no bytes are known, else of tasks.

    No group holds more than 1.1 times the mean or, if that is more, than the heaviest group of a fresh packing,
    largest task first; none holds less than 0.9 times the lightest of that packing. A task stays in its group unless
    that left, is no longer where the task ran, or would miss the balance.
    If it cannot stay it goes where it ran last, else to those that read the same partitions, else to the
    lightest group. No single move from home can be undone without missing the balance, and there are never more of
    them than under the fresh packing whose groups get the numbers from which most of their tasks come.
    """
    unit, weights = _weights(tasks)
    balance = Balance.of(weights, len(groups))
    preferences = _preferences(tasks, groups, before, locality)
    packed = sticky(weights, balance, preferences)
    numbers = _numbers(packed, preferences, groups)
    now = {sized.task: numbers[group] for sized, group in zip(tasks, packed, strict=True)}
    held: Counter[int] = Counter()
    for sized, weight in zip(tasks, weights, strict=True):
        if sized.task in before:
            held[before[sized.task]] += weight
    bounds = reasons.Bounds(unit, balance.least, balance.mean, balance.most)
    facts = _Facts(set(groups), set(before.values()), set(preferences.sites), locality, bounds, held)
    return Grouped(
        now, {task: facts.why(task, before[task], to) for task, to in now.items() if before.get(task, to) != to}
    )


def _weights(tasks: Sequence[SizedTask]) -> tuple[reasons.Unit, list[int]]:
    """The unit to balance by, and the weight of each task: at least 1, so that empty tasks spread out too."""
    sizes = {reasons.Unit.BYTES: [task.bytes for task in tasks], reasons.Unit.RECORDS: [task.records for task in tasks]}
    for unit, measured in sizes.items():
        if any(measured):
            return unit, [max(size, 1) for size in measured]
    return reasons.Unit.TASKS, [1] * len(tasks)


def _preferences(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Preferences:
    sites = [locality.groups.get(number) for number in groups]
    present = set(sites)
    index = {number: position for position, number in enumerate(groups)}
    homes, places = [], []
    for sized in tasks:
        place = locality.tasks.get(sized.task)
        places.append(place if place in present else None)
        home = index.get(before[sized.task]) if sized.task in before else None
        # A group that moved elsewhere is no home if another group is where the task ran.
        elsewhere = home is not None and places[-1] is not None and sites[home] not in (None, place)
        homes.append(None if elsewhere else home)
    return Preferences(homes, places, sites, co_readers([task.reads for task in tasks]))


def _numbers(packed: Sequence[int], preferences: Preferences, groups: Sequence[int]) -> list[int]:
    """The number of each group. Groups that nothing ties to a number are numbered by their first tasks."""
    first = {group: task for task, group in reversed(list(enumerate(packed)))}
    tied = set(preferences.homes)
    free = [group for group, site in enumerate(preferences.sites) if site is None and group not in tied]
    numbers = list(groups)
    for group, place in zip(sorted(free, key=first.__getitem__), free, strict=True):
        numbers[group] = groups[place]
    return numbers


class _Facts(Value, frozen=True):
    """What explains a move: the groups before and now, their locations, and what each would hold (`held`) if no task
    moved."""

    groups: Set[int]
    former: Set[int]
    sites: Set[str | None]
    locality: Locality
    bounds: reasons.Bounds
    held: Counter[int]

    def why(self, task: TaskRef, before: int, now: int) -> reasons.MoveReason:
        """Why a task moved."""
        last, location = self._last(task, now), self.locality.groups.get(before)
        if before not in self.groups:
            return reasons.GroupLeft(before, last)
        if isinstance(last, reasons.AtLocation | reasons.LocationFull) and location not in (None, last.location):
            return reasons.GroupElsewhere(before, location, last)
        if self.held[before] > self.bounds.most:
            return reasons.HeldTooMuch(before, self.held[before], self.bounds)
        if now not in self.former:
            return reasons.GroupJoined(now)
        if self.held[now] < self.bounds.least:
            return reasons.HeldTooLittle(now, self.held[now], self.bounds)
        return reasons.MakesRoom(self.bounds)

    def _last(self, task: TaskRef, now: int) -> reasons.LastLocation:
        """How the location where a task ran last relates to the groups now."""
        place = self.locality.tasks.get(task)
        if place is None:
            return reasons.LocationUnknown()
        if place == self.locality.groups.get(now):
            return reasons.AtLocation(place, now)
        return reasons.LocationFull(place) if place in self.sites else reasons.LocationGone(place)


def co_readers(reads: Sequence[Mapping[str, tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """For each task, by number, the sets of partitions that others read too; those that most tasks read come first.

    Tasks sorted by it stand side by side with those that they share most with. Here two tasks read each set of
    views, and four each set of clicks:

    >>> co_readers([{"views": (task % 4,), "clicks": (task % 2, task % 2 + 2)} for task in range(8)])
    [(1, 0), (3, 2), (1, 4), (3, 5), (1, 0), (3, 2), (1, 4), (3, 5)]
    """
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    read_by = [[numbers.setdefault(item, len(numbers)) for item in read.items()] for read in reads]
    readers = Counter(number for sets in read_by for number in sets)
    return [
        tuple(sorted((number for number in sets if readers[number] > 1), key=lambda number: -readers[number]))
        for sets in read_by
    ]


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
