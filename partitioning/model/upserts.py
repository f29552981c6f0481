"""Upserts: the partitions of a table whose keys all belong to one task, and those that a batch writes anew."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd

from partitioning.model.placement import Placement
from partitioning.model.plan import PlannedWrite


def alone(placement: Placement, cosets: int, owns: Collection[int]) -> frozenset[int]:
    """The partitions whose keys all belong to the task with these residues modulo the cosets of its stage.

    In other partitions no task can tell whether another task has keys.

    >>> sorted(alone(Placement("k", "string", "murmur2", 8), 4, {1}))
    [1, 5]
    >>> four = Placement("k", "string", "murmur2", 4)
    >>> sorted(alone(four, 8, {1})), sorted(alone(four, 8, {1, 2, 5}))
    ([], [1])
    """
    step = gcd(placement.partitions, cosets)
    whole = {first for first in range(step) if all(residue in owns for residue in range(first, cosets, step))}
    return frozenset(number for number in range(placement.partitions) if number % step in whole)


def is_written(partition: int, mine: Collection[int], write: PlannedWrite, *, has_new: bool) -> bool:
    """Whether a batch writes to a partition of an upserted table, rather than leave the files that are there.

    It does if the whole table is written anew, if the partition `has_new` records or is merged, and where others may
    have some: if it is none of the task's own, `mine`. Beside the rows that are there it writes new ones alone.

    >>> from partitioning.model.graph import Mode, Write
    >>> write = PlannedWrite(Write("spent", "totals", "k", False, (), Mode.UPSERT), ())
    >>> [is_written(partition, {0, 1}, write, has_new=partition == 1) for partition in range(3)]
    [False, True, True]
    >>> beside = PlannedWrite(write.declared, (), beside=True, merged=(0,))
    >>> [is_written(partition, {0, 1}, beside, has_new=partition == 1) for partition in range(3)]
    [True, True, False]
    """
    if write.beside:
        return has_new or partition in write.merged
    return write.anew or has_new or partition not in mine
