"""The digest of offsets, compiled: the twin of `partitioning.model.receipt.offset_digest`, run by run of offsets."""

from __future__ import annotations

import numpy as np
from numba import njit

from partitioning.model.receipt import BASE, MODULUS

_P = np.uint64(MODULUS)
_G = np.uint64(BASE)
# Of a geometric sum: parts are added up as differences of powers, and divided by BASE - 1 in the end.
_DIVISOR = np.uint64(pow(BASE - 1, -1, MODULUS))
_BITS = np.uint64(61)
_HALF = np.uint64(31)
_LOW_31 = np.uint64(2**31 - 1)
_LOW_30 = np.uint64(2**30 - 1)
# The first powers: from one offset to another that is near it is one product.
_POWERS = np.array([pow(BASE, distance, MODULUS) for distance in range(64)], np.uint64)


@njit(cache=True, nogil=True)
def digest_of(offsets, chosen):  # type: ignore[no-untyped-def]
    """The digest of those of the offsets (int64, not negative) that are chosen (a flag each), in any order.

    Each run of offsets that follow one another costs two powers of BASE, its length nothing.
    """
    total, power = np.uint64(0), np.uint64(1)
    start = end = at = np.int64(0)
    for i in range(len(offsets)):
        if not chosen[i]:
            continue
        if offsets[i] != end:
            total, power, at = _with_run(start, end, total, power, at)
            start = offsets[i]
        end = offsets[i] + 1
    total, power, at = _with_run(start, end, total, power, at)
    return _times(total, _DIVISOR)


@njit(cache=True, nogil=True, inline="always")
def _with_run(start, end, total, power, at):  # type: ignore[no-untyped-def]
    """The total with BASE^end - BASE^start, and `power`, which was BASE^at, at the run's end."""
    power = _moved(power, at, start)
    total = _plus(total, _P - power)
    power = _moved(power, start, end)
    return _plus(total, power), power, end


@njit(cache=True, nogil=True)
def _moved(power, at, to):  # type: ignore[no-untyped-def]
    """BASE^to, where `power` is BASE^at."""
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
    """The product modulo 2^61 - 1: by halves of 31 bits, as 2^61 counts 1."""
    high_a, low_a, high_b, low_b = a >> _HALF, a & _LOW_31, b >> _HALF, b & _LOW_31
    middle = low_a * high_b + high_a * low_b
    whole = ((high_a * high_b) << np.uint64(1)) + low_a * low_b
    whole += (middle >> np.uint64(30)) + ((middle & _LOW_30) << _HALF)
    return _reduced(whole)


@njit(cache=True, nogil=True, inline="always")
def _plus(a, b):  # type: ignore[no-untyped-def]
    return _reduced(a + b)


@njit(cache=True, nogil=True, inline="always")
def _reduced(a):  # type: ignore[no-untyped-def]
    a = (a & _P) + (a >> _BITS)
    return a - _P if a >= _P else a
