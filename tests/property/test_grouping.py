"""Grouping against brute force: all ways to group the tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partitioning.model.plan import TaskRef
from partitioning.model.reasons import (
    AtLocation,
    GroupElsewhere,
    GroupJoined,
    GroupLeft,
    HeldTooLittle,
    HeldTooMuch,
    LastLocation,
    LocationFull,
    LocationGone,
    LocationUnknown,
    MakesRoom,
    MoveReason,
)
from partitioning.model.statistics import Locality
from partitioning.planning.groups.built_in import balanced_sticky, numbered_after
from partitioning.planning.groups.grouping import Grouped, SizedTask, grouped
from partitioning.planning.groups.packing import Balance, largest_first
from tests.examples import examples, few

moderate = settings(deadline=None, max_examples=examples(100))


@dataclass(frozen=True)
class Case:
    """Tasks by size, the group of each before (None: new), groups now, where groups are and tasks ran."""

    sizes: Sequence[int]
    before: Sequence[int | None]
    groups: Sequence[int]
    sites: Mapping[int, str]
    places: Sequence[str | None]

    def tasks(self) -> list[SizedTask]:
        reads = ({"views": (number % 3,), "clicks": (number,)} for number in range(len(self.sizes)))
        return [
            SizedTask(TaskRef("views", number), size, 1, read)
            for number, (size, read) in enumerate(zip(self.sizes, reads, strict=True))
        ]

    def grouped(self) -> Grouped:
        tasks = self.tasks()
        was = {each.task: group for each, group in zip(tasks, self.before, strict=True) if group is not None}
        ran = {each.task: place for each, place in zip(tasks, self.places, strict=True) if place is not None}
        return balanced_sticky(tasks, self.groups, was, Locality(self.sites, ran))

    def answer(self) -> list[int]:
        groups = self.grouped().groups
        return [groups[each.task] for each in self.tasks()]

    def balance(self) -> Balance:
        return Balance.of([max(size, 1) for size in self.sizes], len(self.groups))

    def loads(self, answer: Sequence[int]) -> list[int]:
        return [
            sum(max(size, 1) for size, to in zip(self.sizes, answer, strict=True) if to == group)
            for group in self.groups
        ]

    def is_balanced(self, answer: Sequence[int]) -> bool:
        balance = self.balance()
        return all(balance.least <= load <= balance.most for load in self.loads(answer))

    def moves(self, answer: Sequence[int]) -> int:
        """Tasks out of a group that has not left."""
        return sum(was in self.groups and was != now for was, now in zip(self.before, answer, strict=True))

    def away(self, answer: Sequence[int]) -> int:
        """Tasks that are not where they ran although a group is there."""
        pairs = zip(self.places, answer, strict=True)
        return sum(place in self.sites.values() and self.sites.get(now) != place for place, now in pairs)

    def held(self, group: int) -> int:
        """What a group would hold if every task had stayed."""
        return sum(max(size, 1) for size, was in zip(self.sizes, self.before, strict=True) if was == group)

    def is_true(self, why: MoveReason, task: int, now: int) -> bool:
        """Whether a reason is one, for a task that is in the group `now`."""
        was, balance = self.before[task], self.balance()
        match why:
            case GroupLeft(group, last):
                return group == was and was not in self.groups and self.is_known(last, task, now)
            case GroupElsewhere(group, location, last):
                elsewhere = group == was and self.sites[group] == location != self.places[task]
                return elsewhere and self.is_known(last, task, now)
            case HeldTooMuch(group, held):
                return group == was and held == self.held(group) > balance.most
            case GroupJoined(group):
                return group == now and group not in self.before
            case HeldTooLittle(group, held):
                return group == now and held == self.held(group) < balance.least
            case MakesRoom():
                return was in self.groups and was != now
        return False

    def is_known(self, last: LastLocation, task: int, now: int) -> bool:
        """Whether it is so where the task ran last."""
        place = self.places[task]
        match last:
            case AtLocation(location, group):
                return group == now and location == place == self.sites[now]
            case LocationFull(location):
                return location == place != self.sites[now] and place in self.sites.values()
            case LocationGone(location):
                return location == place and place not in self.sites.values()
            case LocationUnknown():
                return place is None

    def balanced_answers(self) -> Iterator[tuple[int, ...]]:
        return (each for each in product(self.groups, repeat=len(self.sizes)) if self.is_balanced(each))


@st.composite
def cases(draw: st.DrawFn, sizes: st.SearchStrategy[int], *, stayed: bool = True, located: bool = True) -> Case:
    """Small cases: groups leave, join and run elsewhere, tasks are new, or were grouped unevenly, or all are new."""
    count = draw(st.integers(1, 7))
    numbers = draw(st.lists(st.sampled_from(range(5)), min_size=1, max_size=min(3, count), unique=True))
    before = draw(st.lists(st.none() | st.integers(0, 4) if stayed else st.none(), min_size=count, max_size=count))
    hosts = st.sampled_from(["a", "b", "c"])
    where = draw(st.lists(hosts, min_size=5, max_size=5)) if located else []
    now = draw(st.just(where) | st.lists(hosts, min_size=5, max_size=5)) if located else []
    places = [None if group is None or not located else where[group] for group in before]
    if not stayed:
        places = draw(st.lists(st.none() | hosts, min_size=count, max_size=count))
    return Case(
        draw(st.lists(sizes, min_size=count, max_size=count)),
        before,
        sorted(numbers),
        {number: now[number] for number in numbers} if located else {},
        places,
    )


@given(cases(st.integers(0, 100)))
@moderate
def test_each_task_is_in_one_group_and_no_group_is_out_of_balance_or_empty(case: Case) -> None:
    answer = case.answer()
    assert case.is_balanced(answer)
    assert set(answer) == set(case.groups)


@given(cases(st.integers(0, 100)))
@moderate
def test_the_same_tasks_give_the_same_groups_and_a_second_time_nothing_moves(case: Case) -> None:
    answer = case.answer()
    assert case.answer() == answer
    sites = [case.sites.get(group) for group in answer]
    # They ran where their groups are now.
    again = Case(case.sizes, answer, case.groups, case.sites, sites)
    assert again.answer() == answer


@given(cases(st.integers(0, 100)))
@moderate
def test_every_move_has_a_reason_and_nothing_else_has(case: Case) -> None:
    moved = {
        TaskRef("views", n)
        for n, (was, now) in enumerate(zip(case.before, case.answer(), strict=True))
        if was not in (None, now)
    }
    assert set(case.grouped().why) == moved


@given(cases(st.integers(0, 100)))
@moderate
def test_every_reason_is_true(case: Case) -> None:
    answer = case.answer()
    for task, why in case.grouped().why.items():
        assert case.is_true(why, task.task, answer[task.task]), why


@given(cases(st.integers(0, 100), located=False))
@moderate
def test_no_move_can_be_undone_without_losing_the_balance(case: Case) -> None:
    answer = case.answer()
    for task, was in enumerate(case.before):
        if was is not None and was in case.groups and was != answer[task]:
            assert not case.is_balanced([was if each == task else now for each, now in enumerate(answer)])


@given(cases(st.just(7), located=False))
@example(Case([7] * 7, [None, None, None, 0, 0, None, 0], [0, 1, 2], {}, [None] * 7))
@moderate
def test_tasks_of_one_size_change_groups_as_seldom_as_can_be(case: Case) -> None:
    assert case.moves(case.answer()) == min(map(case.moves, case.balanced_answers()))


@given(cases(st.just(7), stayed=False))
@example(Case([7] * 7, [None] * 7, [0, 1, 2], {0: "b", 1: "a", 2: "a"}, [None, None, None, None, "b", None, "b"]))
@moderate
def test_of_tasks_of_one_size_as_many_as_can_be_go_where_they_ran(case: Case) -> None:
    assert case.away(case.answer()) == min(map(case.away, case.balanced_answers()))


@given(cases(st.integers(0, 100), located=False))
@moderate
def test_there_are_no_more_moves_than_under_a_fresh_packing_that_keeps_the_numbers(case: Case) -> None:
    weights = [max(size, 1) for size in case.sizes]
    homes = [case.groups.index(was) if was in case.groups else None for was in case.before]
    fresh = numbered_after(homes, largest_first(weights, len(case.groups)))
    assert case.is_balanced([case.groups[group] for group in fresh])
    assert case.moves(case.answer()) <= case.moves([case.groups[group] for group in fresh])


def test_tasks_of_any_size_move_nearly_as_seldom_as_can_be() -> None:
    rnd = random.Random(4)
    ours = fewest = optimal = 0
    for _ in range(300):
        count = rnd.randint(2, 7)
        sizes = [rnd.choice([rnd.randint(1, 10), rnd.randint(1, 100)]) for _ in range(count)]
        groups = range(rnd.randint(1, min(3, count)))
        case = Case(sizes, [rnd.choice([0, 1, 2, 3, None]) for _ in sizes], groups, {}, [None] * count)
        moves, best = case.moves(case.answer()), min(map(case.moves, case.balanced_answers()))
        ours, fewest, optimal = ours + moves, fewest + best, optimal + (moves == best)
    assert optimal >= 0.95 * 300
    assert ours <= 1.05 * fewest


def grouped_equally(tasks: int, groups: int, before: Mapping[TaskRef, int]) -> Grouped:
    equal = [SizedTask(TaskRef("views", number), 100, 1, {"views": (number,)}) for number in range(tasks)]
    return balanced_sticky(equal, range(groups), before, Locality())


@given(st.integers(2, 200), st.integers(1, 20))
@moderate
def test_a_group_that_joins_takes_its_share_of_equal_tasks_and_no_others_move(tasks: int, groups: int) -> None:
    groups = min(groups, tasks - 1)
    answer = grouped_equally(tasks, groups + 1, grouped_equally(tasks, groups, {}).groups)
    assert 1 <= len(answer.why) <= -(-tasks // (groups + 1))
    assert {answer.groups[task] for task in answer.why} == {groups}


@given(st.integers(2, 200), st.integers(2, 20))
@moderate
def test_of_equal_tasks_only_those_of_a_group_that_left_move(tasks: int, groups: int) -> None:
    groups = min(groups, tasks)
    first = grouped_equally(tasks, groups, {}).groups
    answer = grouped_equally(tasks, groups - 1, first)
    assert set(answer.why) == {task for task, group in first.items() if group == groups - 1}


sizes = st.lists(st.integers(0, 100), min_size=1, max_size=7)


def heaviest(sizes: list[int], groups: tuple[int, ...]) -> int:
    return max(sum(size for size, to in zip(sizes, groups, strict=True) if to == group) for group in set(groups))


@given(sizes, st.integers(1, 3))
@moderate
def test_groups_hold_each_task_once_and_the_heaviest_is_near_the_best_possible(sizes: list[int], groups: int) -> None:
    tasks = [SizedTask(TaskRef("views", number), size, 1, {}) for number, size in enumerate(sizes)]
    made = grouped(tasks, "balanced-sticky", groups).groups
    assert sorted(task for group in made for task in group.tasks) == [each.task for each in tasks]
    assert all(group.tasks for group in made)
    assert [group.bytes for group in made] == [sum(sizes[task.task] for task in group.tasks) for group in made]
    # Groups are numbered by their first tasks.
    assert made == tuple(sorted(made, key=lambda group: group.tasks))
    best = min(heaviest(sizes, each) for each in product(range(groups), repeat=len(sizes)))
    assert max(group.bytes for group in made) <= Fraction(4, 3) * best


@pytest.mark.parametrize("skew", few([True, False], always=0))
@pytest.mark.timeout(60)
def test_a_hundred_thousand_tasks_in_a_thousand_groups_move_seldom(skew: bool) -> None:
    rnd = random.Random(5)
    draw = (lambda: int(1000 * rnd.paretovariate(1.5))) if skew else (lambda: 100)
    tasks = [SizedTask(TaskRef("views", n), draw(), 1, {"views": (n % 50_000,)}) for n in range(100_000)]
    first = balanced_sticky(tasks, range(1000), {}, Locality())
    places = {task: f"h{group % 40}" for task, group in first.groups.items()}
    sites = {group: f"h{group % 40}" for group in range(1000)}
    assert balanced_sticky(tasks, range(1000), first.groups, Locality(sites, places)) == Grouped(first.groups)
    fewer = balanced_sticky(tasks, range(990), first.groups, Locality(sites, places))
    assert set(fewer.why) == {task for task, group in first.groups.items() if fewer.groups[task] != group}
    left = sum(group >= 990 for group in first.groups.values())
    # A task that fills a group alone has that group's tasks make room for it.
    assert left <= len(fewer.why) <= left + 200
    more = balanced_sticky(tasks, range(1001), first.groups, Locality(sites, places))
    assert 1 <= len(more.why) <= 100
    assert {more.groups[task] for task in more.why} == {1000}
