"""Columns: a long tuple of small values as a document stores it, field by field, and numbers in a row as a rule."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from partitioning.values import Value

V = TypeVar("V", bound=Value)


def to_columns(kind: type[Value], rows: Sequence[Value]) -> dict[str, Any]:
    """Rows, all of the class `kind`, as plain data. A field is text, a number or again a tuple of rows.

    One that has its default in all rows is left out. Offset ranges as a plan may hold them:

    >>> class Range(Value, frozen=True):
    ...     partition: int
    ...     start: int
    ...     end: int
    >>> to_columns(Range, [Range(0, 0, 25), Range(1, 0, 3), Range(2, 0, 9)])
    {'count': 3, 'fields': {'partition': {'first': 0, 'step': 1}, 'start': {'first': 0, 'step': 0}, 'end': [25, 3, 9]}}
    """
    fields: dict[str, Any] = {}
    for name, inner in _fields(kind).items():
        values = [getattr(row, name) for row in rows]
        if name in _defaults(kind) and all(value == _defaults(kind)[name] for value in values):
            continue
        if issubclass(inner, Value):
            counts = _column([len(value) for value in values])
            fields[name] = {"counts": counts, "rows": to_columns(inner, list(chain.from_iterable(values)))}
        else:
            fields[name] = _column(values)
    return {"count": len(rows), "fields": fields}


def from_columns(kind: type[V], stored: Any) -> tuple[V, ...]:
    """The rows that `to_columns` drew together. Raises TypeError, ValueError or KeyError for anything else."""
    count, fields = stored["count"], stored["fields"]
    needed, known = set(_fields(kind)) - set(_defaults(kind)), set(_fields(kind))
    if set(stored) != {"count", "fields"} or not needed <= set(fields) <= known or type(count) is not int:
        raise TypeError(f"columns of {kind.__name__} are {sorted(stored)} of {sorted(fields)}")
    columns: list[list[Any]] = []
    for name, inner in _fields(kind).items():
        if name not in fields:
            columns.append([_defaults(kind)[name]] * count)
        elif issubclass(inner, Value):
            counts, rows = _values(fields[name]["counts"], count, int), from_columns(inner, fields[name]["rows"])
            if sum(counts) != len(rows):
                raise ValueError(f"{name} has {len(rows)} rows, not {sum(counts)}")
            following = iter(rows)
            columns.append([tuple(islice(following, length)) for length in counts])
        else:
            columns.append(_values(fields[name], count, inner))
    return tuple(kind(*values) for values in zip(*columns, strict=True))


@cache
def _fields(kind: type[Value]) -> Mapping[str, type]:
    """The type of each field of a value class; where it holds a tuple of values, the class of these."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: typing.get_args(of)[0] if typing.get_origin(of) is tuple else of for name, of in types.items()}


@cache
def _defaults(kind: type[Value]) -> Mapping[str, Any]:
    """The fields of a value class that have a default."""
    fields = msgspec.structs.fields(kind)
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def _column(values: list[Any]) -> Any:
    """The values; of numbers at equal distances the first and the step, of text the common beginning and the rest."""
    kinds = set(map(type, values))
    if len(values) > 1 and kinds == {int}:
        first, step = values[0], values[1] - values[0]
        if all(value == first + step * place for place, value in enumerate(values)):
            return {"first": first, "step": step}
    if len(values) > 1 and kinds == {str} and (prefix := _beginning(values)):
        return {"prefix": prefix, "rest": [value[len(prefix) :] for value in values]}
    return values


def _beginning(values: list[str]) -> str:
    """What all begin with: the first and the last of them in order tell."""
    first, last = min(values), max(values)
    return next((first[:place] for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def _values(column: Any, count: int, kind: type) -> list[Any]:
    if isinstance(column, dict) and kind is str:
        return [column["prefix"] + value for value in _values(column["rest"], count, str)]
    if isinstance(column, dict) and kind is int:
        return list(islice(_progression(column["first"], column["step"]), count))
    if len(column) != count:
        raise ValueError(f"a column has {len(column)} values, not {count}")
    if not set(map(type, column)) <= {kind}:
        raise TypeError(f"a column has other values than {kind.__name__}")
    return list(column)


def _progression(first: int, step: int) -> Iterator[int]:
    if type(first) is not int or type(step) is not int:
        raise TypeError("a progression is of numbers")
    while True:
        yield first
        first += step
