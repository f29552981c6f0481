"""Columns: a long tuple of small values as a document stores it, field by field, and numbers in a row as a rule."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any


def to_columns(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """Rows, all of the dataclass `kind`, as plain data. A field is text, a number or again a tuple of rows.

    Offset ranges as a plan may hold them:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Range:
    ...     partition: int
    ...     start: int
    ...     end: int
    >>> to_columns(Range, [Range(0, 0, 25), Range(1, 0, 3), Range(2, 0, 9)])
    {'count': 3, 'fields': {'partition': {'first': 0, 'step': 1}, 'start': {'first': 0, 'step': 0}, 'end': [25, 3, 9]}}
    """
    fields = {}
    for name, inner in _fields(kind).items():
        values = [getattr(row, name) for row in rows]
        if inner is None:
            fields[name] = _column(values)
        else:
            counts = _column([len(value) for value in values])
            fields[name] = {"counts": counts, "rows": to_columns(inner, list(chain.from_iterable(values)))}
    return {"count": len(rows), "fields": fields}


def from_columns(kind: Any, stored: Any) -> tuple[Any, ...]:
    """The rows that `to_columns` drew together. Raises TypeError, ValueError or KeyError for anything else."""
    count, fields = stored["count"], stored["fields"]
    if set(stored) != {"count", "fields"} or set(fields) != set(_fields(kind)) or type(count) is not int:
        raise TypeError(f"columns of {kind.__name__} are {sorted(stored)} of {sorted(fields)}")
    columns = []
    for name, inner in _fields(kind).items():
        if inner is None:
            columns.append(_values(fields[name], count))
        else:
            counts, rows = _values(fields[name]["counts"], count), from_columns(inner, fields[name]["rows"])
            if sum(counts) != len(rows):
                raise ValueError(f"{name} has {len(rows)} rows, not {sum(counts)}")
            following = iter(rows)
            columns.append([tuple(islice(following, each)) for each in counts])
    return tuple(kind(*values) for values in zip(*columns, strict=True))


def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass, each with the dataclass of which it holds a tuple, None for a plain one."""
    hints = typing.get_type_hints(kind)
    inner = {name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is tuple}
    return {field.name: inner.get(field.name) for field in dataclasses.fields(kind)}


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


def _values(column: Any, count: int) -> list[Any]:
    if isinstance(column, dict) and set(column) == {"prefix", "rest"}:
        return [column["prefix"] + value for value in _values(column["rest"], count)]
    if isinstance(column, dict):
        return list(islice(_progression(column["first"], column["step"]), count))
    if len(column) != count:
        raise ValueError(f"a column has {len(column)} values, not {count}")
    return list(column)


def _progression(first: int, step: int) -> Iterator[int]:
    if type(first) is not int or type(step) is not int:
        raise TypeError("a progression is of numbers")
    while True:
        yield first
        first += step
