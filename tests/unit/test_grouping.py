"""Grouping: balanced, whole, deterministic."""

from __future__ import annotations

import pytest

from partitioning.errors import Refused
from partitioning.grouping import balanced
from partitioning.plan import TaskRef

TASKS = [TaskRef("views", number) for number in range(6)]


def grouped(sizes: list[int], groups: int) -> list[list[int]]:
    tasks = TASKS[: len(sizes)]
    made = balanced({task: (size, size) for task, size in zip(tasks, sizes, strict=True)}, groups, tasks)
    return [[task.task for task in group.tasks] for group in made]


def test_the_largest_task_is_dealt_first() -> None:
    assert grouped([10, 70, 40, 30], 2) == [[0, 1], [2, 3]]


def test_equal_tasks_are_dealt_in_order() -> None:
    assert grouped([5] * 6, 3) == [[0, 3], [1, 4], [2, 5]]


def test_tasks_without_bytes_spread_out_too() -> None:
    assert grouped([0] * 6, 2) == [[0, 2, 4], [1, 3, 5]]


def test_there_are_never_more_groups_than_tasks() -> None:
    assert grouped([1, 1], 9) == [[0], [1]]


def test_a_group_says_what_it_reads() -> None:
    (group,) = balanced({TASKS[0]: (70, 7), TASKS[1]: (10, 1)}, 1, TASKS[:2])
    assert (group.group, group.bytes, group.records) == (0, 80, 8)


@pytest.mark.parametrize("groups", [0, -3])
def test_less_than_one_group_is_refused(groups: int) -> None:
    with pytest.raises(Refused, match="task groups asked for"):
        grouped([1], groups)
