"""Ownership: whose the keys of a stage are, and what share of them stays with the same owner.

A key with hash h belongs to the task that owns `h mod L`. A residue mod L and one mod L' share keys if and only
if they agree modulo gcd(L, L'); so shares are counted from L + L' residues, never over the lcm(L, L') that there
may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd

from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.takes import Task
from partitioning.values import Value

Labelled = tuple[int, Sequence[tuple[int, int]]]


def kept(before: Labelled, now: Labelled) -> Fraction:
    """The share of keys whose label stays. Each side has a modulus L and its residues, each with a label.

    From 4 tasks to 8 the keys of half the residues modulo 8 stay where they are:

    >>> kept((4, [(t, t) for t in range(4)]), (8, [(t, t) for t in range(8)]))
    Fraction(1, 2)
    """
    step = gcd(before[0], now[0])
    old, new = (Counter((residue % step, label) for residue, label in side[1]) for side in (before, now))
    old_sizes, new_sizes = (Counter(residue % step for residue, _ in side[1]) for side in (before, now))
    stays = sum(count * new[labelled] for labelled, count in old.items())
    return Fraction(stays, sum(count * new_sizes[residue] for residue, count in old_sizes.items()))


class Side(Value, frozen=True, dict=True):
    """A stage of one of the plans, and the group of each of its plan's tasks."""

    plan: Plan
    stage: Stage
    group: Mapping[TaskRef, int]

    @cached_property
    def takers(self) -> tuple[Task, ...]:
        """The tasks that take keys, those that share a hot key as one."""
        return tuple(task for task in self.stage.undivided if not task.null_keys)

    @cached_property
    def keyed(self) -> bool:
        return any(task.owns for task in self.takers)

    @cached_property
    def in_ranges(self) -> bool:
        """Whether tasks read ranges of partitions, so that a key may be several tasks'."""
        return any(task.span is not None for task in self.takers)

    @cached_property
    def owners(self) -> dict[int, int]:
        """The task of each residue modulo L, in a stage that keeps keys together."""
        return {residue: task.task for task in self.takers for residue in task.owns}

    @cached_property
    def groups(self) -> dict[int, int]:
        return {task.task: self.group[TaskRef(self.stage.name, task.task)] for task in self.takers}

    def readers(self, name: str) -> dict[int, int]:
        """The last task that reads each partition of an input: the only one where keys are not kept together."""
        return {number: task.task for task in self.takers for number in task.reads.get(name, ())}

    def held(self, partition: int, partitions: int, labels: Mapping[int, int], readers: Mapping[int, int]) -> Labelled:
        """The residues that the keys of a partition have, each with the label of its task."""
        if not self.keyed:
            return 1, [(0, labels[readers[partition]])]
        modulus = self.stage.cosets
        step = gcd(partitions, modulus)
        return modulus, [(residue, labels[self.owners[residue]]) for residue in range(partition % step, modulus, step)]
