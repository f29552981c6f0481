"""Groupers as users write them, named by import path in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.model.plan import TaskRef
from partitioning.model.reasons import Said
from partitioning.model.statistics import Locality
from partitioning.planning.groups.grouping import Grouped, SizedTask


def all_in_the_last(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """One task in each group but the last, which gets all others; says why."""
    answer = {each.task: groups[min(place, len(groups) - 1)] for place, each in enumerate(tasks)}
    return Grouped(answer, {task: Said("the last group has room") for task in before})


def careless(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Forgets the first task, makes one up, and uses a group that is not there."""
    answer = {each.task: groups[0] for each in tasks[1:]}
    return Grouped(answer | {TaskRef("nothing", 7): groups[0], tasks[-1].task: 99})


def wordy(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Gives bare words as a reason."""
    answer = {each.task: groups[place % len(groups)] for place, each in enumerate(tasks)}
    return Grouped(answer, {tasks[0].task: "why not"})  # type: ignore[dict-item]


def talkative(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> str:
    """Answers with a word."""
    return "fine"
