"""Grouping against brute force: all ways to deal the tasks."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from partitioning.grouping import balanced
from partitioning.plan import TaskRef

sizes = st.lists(st.integers(0, 100), min_size=1, max_size=7)


def heaviest(sizes: list[int], dealt: tuple[int, ...]) -> int:
    return max(sum(size for size, to in zip(sizes, dealt, strict=True) if to == group) for group in set(dealt))


@given(sizes, st.integers(1, 3))
def test_groups_hold_each_task_once_and_the_heaviest_is_near_the_best_possible(sizes: list[int], groups: int) -> None:
    tasks = [TaskRef("views", number) for number in range(len(sizes))]
    made = balanced({task: (size, 1) for task, size in zip(tasks, sizes, strict=True)}, groups, tasks)
    assert sorted(task for group in made for task in group.tasks) == tasks
    assert all(group.tasks for group in made)
    assert [group.bytes for group in made] == [sum(sizes[task.task] for task in group.tasks) for group in made]
    best = min(heaviest(sizes, dealt) for dealt in product(range(groups), repeat=len(sizes)))
    assert max(group.bytes for group in made) <= Fraction(4, 3) * best


@given(st.permutations(list(range(6))), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_the_order_of_the_sizes_given_changes_nothing(order: list[int], some: list[int]) -> None:
    tasks = [TaskRef("views", number) for number in range(6)]
    by_number = {task: (size, 1) for task, size in zip(tasks, some, strict=True)}
    shuffled = {tasks[number]: by_number[tasks[number]] for number in order}
    assert balanced(shuffled, 3, tasks) == balanced(by_number, 3, tasks)
