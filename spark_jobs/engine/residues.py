"""Residues of hashes, compiled: tests whether a residue is in a range or set, mostly without a division."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

_WHOLE = 1 << 64
_NARROW = 1 << 32


class ResidueRange(NamedTuple):
    """The residues [first, first + many) of a modulus: the hashes h with `reduce(h) - low < width`, unsigned.

    `reduce` multiplies by `factor` modulo 2^64 if `by_product`, else it takes the remainder of a division by it. The
    position of a product in [0, 2^64) is that of the residue in [0, modulus). This holds for hashes and moduli of 32
    bits. Source: Lemire, Kaser and Kurz, "Faster remainder by direct computation" (2019).
    """

    by_product: bool
    factor: np.uint64
    low: np.uint64
    width: np.uint64


@cache
def residues(modulus: int, first: int, many: int, hashes: np.dtype) -> ResidueRange:
    """The `many` residues from `first` on, for hashes of this type.

    >>> three = residues(10, 4, 3, np.dtype(np.uint32))
    >>> [h for h in range(20) if among(np.uint32(h), three)]
    [4, 5, 6, 14, 15, 16]
    """
    if hashes.itemsize > 4 or modulus >= _NARROW:
        return ResidueRange(False, np.uint64(modulus), np.uint64(first), np.uint64(many))
    low, end = (-(-residue * _WHOLE // modulus) for residue in (first, first + many))
    if end - low == _WHOLE:
        return ResidueRange(False, np.uint64(1), np.uint64(0), np.uint64(1))
    return ResidueRange(True, np.uint64(-(-_WHOLE // modulus)), np.uint64(low), np.uint64(end - low))


@njit(cache=True, nogil=True, inline="always")
def among(h, residues):  # type: ignore[no-untyped-def]
    """Whether the residue of a hash is in the range."""
    wide = np.uint64(h)
    reduced = wide * residues.factor if residues.by_product else wide % residues.factor
    return reduced - residues.low < residues.width


@njit(cache=True, nogil=True)
def all_among(hashes, residues):  # type: ignore[no-untyped-def]
    """Whether the residues of all hashes are in the range. It has no early end, and so can work on several at once."""
    outside = 0
    for h in hashes:
        outside += not among(h, residues)
    return outside == 0


@njit(cache=True, nogil=True)
def rows_among(hashes, residues):  # type: ignore[no-untyped-def]
    """The rows of hashes whose residues are in the range, ascending."""
    rows, many = np.empty(len(hashes), np.int64), 0
    for row in range(len(hashes)):
        rows[many] = row
        many += among(hashes[row], residues)
    return rows[:many].copy()


@njit(cache=True, nogil=True)
def rows_by_residue(hashes, modulus):  # type: ignore[no-untyped-def]
    """All rows, by the residues of their hashes, and where those of each residue begin; the last number is an end.

    The modulus has the type of the hashes. Equal residues keep their order.
    """
    begins = np.zeros(modulus + 2, np.int64)
    found, rows = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    for row in range(len(hashes)):
        found[row] = hashes[row] % modulus
        begins[found[row] + 2] += 1
    for residue in range(2, len(begins)):
        begins[residue] += begins[residue - 1]
    # What is counted for the residue before becomes the place of the next row, and in the end where its own begin.
    for row in range(len(hashes)):
        rows[begins[found[row] + 1]] = row
        begins[found[row] + 1] += 1
    return rows, begins[:-1]


def rows_of(residues: Iterable[int], rows: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Of what `rows_by_residue` gave, the rows of these residues, ascending."""
    found = [rows[begins[residue] : begins[residue + 1]] for residue in residues]
    return found[0] if len(found) == 1 else np.sort(np.concatenate([rows[:0], *found]))


@njit(cache=True, nogil=True, inline="always")
def is_one_of(residue, residues):  # type: ignore[no-untyped-def]
    """Whether a residue is in an ascending array of residues. Most tasks have one."""
    if len(residues) == 1:
        return residue == residues[0]
    place = np.searchsorted(residues, residue)
    return place < len(residues) and residues[place] == residue
