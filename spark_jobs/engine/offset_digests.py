"""The digest of offsets, compiled: the twin of `partitioning.model.receipt.offset_digest`."""

from __future__ import annotations

import numpy as np
from numba import njit

from partitioning.model.receipt import BASE, MODULUS

_P = np.uint64(MODULUS)
_G = np.uint64(BASE)
_BITS = np.uint64(61)
_HALF = np.uint64(31)
_LOW_31 = np.uint64(2**31 - 1)
_LOW_30 = np.uint64(2**30 - 1)
# The first powers. They make a step from one offset to a near one a single product.
_POWERS = np.array([pow(BASE, distance, MODULUS) for distance in range(64)], np.uint64)


@njit(cache=True, nogil=True)
def digest_of(offsets):  # type: ignore[no-untyped-def]
    """The digest of offsets in any order: int64, not negative. A step to a near offset costs one product.

    `range_digest` gives that of a range at once.
    """
    total, power, at = np.uint64(0), np.uint64(1), np.int64(0)
    for offset in offsets:
        power = _moved(power, at, offset)
        total, at = _reduced(total + power), offset
    return total


@njit(cache=True, nogil=True)
def _moved(power, at, to):  # type: ignore[no-untyped-def]
    """BASE^to, given that `power` is BASE^at."""
    if at <= to < at + len(_POWERS):
        return _times(power, _POWERS[to - at])
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
