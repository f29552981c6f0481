"""Columns: a long sequence of small values as a document stores it, field by field, and numbers in a row as a rule."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import count, islice
from typing import Any, TypeVar, assert_never

import msgspec

from partitioning.packed_rows import (
    EqualSteps,
    FieldKind,
    PackedColumn,
    PackedRows,
    Runs,
    Texts,
    column,
    numbers,
    parts,
    run,
)
from partitioning.values import Value

V = TypeVar("V", bound=Value)


def to_columns(kind: type[Value], rows: Iterable[Value]) -> dict[str, Any]:
    """Rows of the class `kind` as plain data. A field is text, a number or a tuple of rows.

    A field that has its default in all rows is left out. Offset ranges as a plan may hold them:

    >>> class Range(Value, frozen=True):
    ...     partition: int
    ...     start: int
    ...     end: int
    >>> to_columns(Range, [Range(0, 0, 25), Range(1, 0, 3), Range(2, 0, 9)])
    {'count': 3, 'fields': {'partition': {'first': 0, 'step': 1}, 'start': {'first': 0, 'step': 0}, 'end': [25, 3, 9]}}
    """
    held, defaults = PackedRows.of(kind, rows), _defaults(kind)
    fields = {
        name: _stored(values)
        for name, values in held.columns.items()
        if name not in defaults or any(value != defaults[name] for value in values)
    }
    return {"count": len(held), "fields": fields}


def from_columns(kind: type[V], stored: Any) -> PackedRows[V]:
    """The rows that `to_columns` drew together. Raises TypeError, ValueError or KeyError for anything else."""
    length, fields = stored["count"], stored["fields"]
    needed, known = set(parts(kind)) - set(_defaults(kind)), set(parts(kind))
    if set(stored) != {"count", "fields"} or not needed <= set(fields) <= known or type(length) is not int:
        raise TypeError(f"columns of {kind.__name__} are {sorted(stored)} of {sorted(fields)}")
    columns = {
        name: _read(part, fields[name], length) if name in fields else column(part, [_defaults(kind)[name]] * length)
        for name, part in parts(kind).items()
    }
    return PackedRows(kind, columns, length)


@cache
def _defaults(kind: type[Value]) -> Mapping[str, Any]:
    """The fields of a value class that have a default."""
    fields = msgspec.structs.fields(kind)
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def _stored(values: PackedColumn) -> Any:
    """A column as plain data; of numbers at equal distances the first and the step, of text the common beginning."""
    match values:
        case EqualSteps():
            return {"first": values.first, "step": values.step}
        case Texts():
            return {"prefix": values.prefix, "rest": list(values.rests())} if values.prefix else list(values)
        case Runs():
            return {"counts": _stored(numbers(values.lengths())), "rows": to_columns(values.rows.kind, values.rows)}
        case array() | tuple():
            return list(values)
        case _:
            assert_never(values)


def _read(part: FieldKind, stored: Any, length: int) -> PackedColumn:
    """The values of a field as a column of this length."""
    if not part.is_run:
        return column(part, _values(stored, length, part.kind))
    lengths, rows = _values(stored["counts"], length, int), from_columns(part.kind, stored["rows"])
    if sum(lengths) != len(rows) or min(lengths, default=0) < 0:
        raise ValueError(f"tuples of {len(rows)} {part.kind.__name__} have {sum(lengths)}")
    return run(rows, lengths)


def _values(stored: Any, length: int, kind: type) -> list[Any]:
    if isinstance(stored, dict) and kind is str:
        return [stored["prefix"] + value for value in _values(stored["rest"], length, str)]
    if isinstance(stored, dict) and kind is int:
        return list(islice(_progression(stored["first"], stored["step"]), length))
    if len(stored) != length:
        raise ValueError(f"a column has {len(stored)} values, not {length}")
    if not set(map(type, stored)) <= {kind}:
        raise TypeError(f"a column has other values than {kind.__name__}")
    return list(stored)


def _progression(first: int, step: int) -> Iterator[int]:
    if type(first) is not int or type(step) is not int:
        raise TypeError("a progression is of numbers")
    return count(first, step)
