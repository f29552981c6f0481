"""Likeness: which values of results are the same, although floating-point numbers are summed in another order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_TOLERANCE = 1e-9
_LINEAGE = ("_batch", "_task")
MOST_ROWS = 1_000_000

Rows = list[dict[str, object]]


def alike(one: object, other: object) -> bool:
    """Whether two values are the same, floating-point numbers nearly."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def in_order(rows: Rows) -> Rows:
    """Rows in an order that does not depend on the last digits of floating-point numbers."""
    return sorted(rows, key=lambda row: [(name, _rough(value)) for name, value in row.items()])


def plain_rows(table: pa.Table) -> Rows:
    """The rows of a table in that order, without lineage."""
    lineage = [name for name in _LINEAGE if name in table.column_names]
    return in_order(table.drop_columns(lineage).to_pylist())


def without(rows: Sequence[T], others: Sequence[T]) -> list[T]:
    """The rows that others, in the same order, do not have."""
    if len(rows) == len(others) and all(map(alike, rows, others)):
        return []
    left, only = list(others), list[T]()
    for row in rows:
        place = next((number for number, other in enumerate(left) if alike(row, other)), None)
        if place is None:
            only.append(row)
        else:
            del left[place]
    return only


def _rough(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
