"""Upserts: the partitions of a table whose keys all belong to one task."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd

from partitioning.model.placement import Placement


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
