"""Residues of hashes, compiled: whether one is among some, for most hashes by a product and not by a division."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

_WHOLE = 1 << 64
_NARROW = 1 << 32


class ResidueRange(NamedTuple):
    """The residues [first, first + many) by some modulus: those hashes h for which `reduce(h) - low < width`, unsigned.

    To reduce is to multiply by `factor` modulo 2^64, if that is `by_product`, else to divide by it and keep the rest. A
    product's place below 2^64 is that of the residue below the modulus. Source: Lemire, Kaser and Kurz, "Faster
    remainder by direct computation" (2019); it holds for hashes and moduli of 32 bits.
    """

    by_product: bool
    factor: np.uint64
    low: np.uint64
    width: np.uint64


def residues(modulus: int, first: int, many: int, hashes: np.dtype) -> ResidueRange:
    """The `many` residues from `first` on, for hashes of this type; or all of them.

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
    """Whether the residue of a hash is one of these."""
    wide = np.uint64(h)
    reduced = wide * residues.factor if residues.by_product else wide % residues.factor
    return reduced - residues.low < residues.width


@njit(cache=True, nogil=True, inline="always")
def is_one_of(residue, residues):  # type: ignore[no-untyped-def]
    """Whether it is among the residues, which ascend; most tasks have one."""
    if len(residues) == 1:
        return residue == residues[0]
    place = np.searchsorted(residues, residue)
    return place < len(residues) and residues[place] == residue
