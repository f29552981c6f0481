"""Offsets as they are read: the gaps between them, and their digest.

The digest is compiled: the twin of `partitioning.model.receipt.offset_digest`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from partitioning.model.offsets import Span
from partitioning.model.receipt import BASE, MODULUS, GapsSeen

# How many gaps a receipt lists.
NAMED = 200
_P = np.uint64(MODULUS)
_G = np.uint64(BASE)
_BITS = np.uint64(61)
_HALF = np.uint64(31)
_LOW_31 = np.uint64(2**31 - 1)
_LOW_30 = np.uint64(2**30 - 1)
# The first powers, and of later ones each of so many. Near offsets are added up by these, and a step to others is a
# single product.
_MANY = 1024
_NEAR = np.array([pow(BASE, distance, MODULUS) for distance in range(_MANY)], np.uint64)
_FAR = np.array([pow(BASE, distance * _MANY, MODULUS) for distance in range(_MANY)], np.uint64)


@njit(cache=True, nogil=True)
def digest_of(offsets):  # type: ignore[no-untyped-def]
    """The digest of offsets in any order: int64, not negative. It is quickest if they ascend.

    `range_digest` gives that of a range at once.
    """
    # `near` has the powers of offsets from `at` on, of which `power` is BASE^at.
    total, near, power, at = np.uint64(0), np.uint64(0), np.uint64(1), np.int64(0)
    for offset in offsets:
        ahead = offset - at
        if ahead < 0 or ahead >= _MANY:
            total, near = _reduced(total + _times(power, near)), np.uint64(0)
            if 0 <= ahead < _MANY * _MANY:
                power, at = _times(power, _FAR[ahead // _MANY]), at + ahead // _MANY * _MANY
            else:
                power, at = _power(offset), offset
        near = _reduced(near + _NEAR[offset - at])
    return _reduced(total + _times(power, near))


@njit(cache=True, nogil=True)
def _power(to):  # type: ignore[no-untyped-def]
    """BASE^to."""
    power, square = np.uint64(1), _G
    while to:
        if to & 1:
            power = _times(power, square)
        square = _times(square, square)
        to >>= 1
    return power


@njit(cache=True, nogil=True, inline="always")
def _times(a, b):  # type: ignore[no-untyped-def]
    """The product modulo 2^61 - 1, by halves of 31 bits: 2^61 is 1 there."""
    high_a, low_a, high_b, low_b = a >> _HALF, a & _LOW_31, b >> _HALF, b & _LOW_31
    middle = low_a * high_b + high_a * low_b
    whole = ((high_a * high_b) << np.uint64(1)) + low_a * low_b
    whole += (middle >> np.uint64(30)) + ((middle & _LOW_30) << _HALF)
    return _reduced(whole)


@njit(cache=True, nogil=True, inline="always")
def _reduced(a):  # type: ignore[no-untyped-def]
    a = (a & _P) + (a >> _BITS)
    return a - _P if a >= _P else a


class Gaps:
    """The gaps in the offsets from `start` on. All are counted; of many, a regular sample is listed."""

    def __init__(self, start: int) -> None:
        self._expected = start
        self._count = 0
        self._every = 1
        self._some: list[Span] = []

    def note(self, offsets: np.ndarray) -> None:
        """Note offsets that were read, in ascending order."""
        if not len(offsets):
            return
        expected = np.append(self._expected, offsets[:-1] + 1)
        at = np.flatnonzero(offsets > expected)
        numbers = np.arange(self._count, self._count + len(at))
        for place in at[numbers % self._every == 0].tolist():
            self._some.append(Span(int(expected[place]), int(offsets[place])))
        self._count += len(at)
        while len(self._some) > NAMED:
            self._some = self._some[::2]
            self._every *= 2
        self._expected = int(offsets[-1]) + 1

    def seen(self, reached: int) -> GapsSeen:
        """The gaps up to the offset that was reached."""
        last = [Span(self._expected, reached)] if self._expected < reached else []
        return GapsSeen(self._count + len(last), (*self._some, *last))
