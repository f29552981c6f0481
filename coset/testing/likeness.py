"""Likeness: which values of results are the same, although floating-point numbers are summed in another order."""

from __future__ import annotations

import math
from collections.abc import Mapping

_TOLERANCE = 1e-9


def alike(one: object, other: object) -> bool:
    """Whether two values are the same, floating-point numbers nearly."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other
