"""Groupers as users write them, named by import path in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.grouping import Dealt, SizedTask


def all_in_the_last(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Dealt:
    """One task in each group but the last, which gets all others; says why."""
    dealt = {each.task: groups[min(place, len(groups) - 1)] for place, each in enumerate(tasks)}
    return Dealt(dealt, {task: "the last group has room" for task in before})


def careless(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Dealt:
    """Forgets the first task, makes one up, and uses a group that is not there."""
    dealt = {each.task: groups[0] for each in tasks[1:]}
    return Dealt(dealt | {TaskRef("nothing", 7): groups[0], tasks[-1].task: 99})


def talkative(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> str:
    """Answers with a word."""
    return "fine"
