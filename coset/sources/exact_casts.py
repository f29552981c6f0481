"""Casts of landed columns to the types that a pipeline declares, in which no value becomes another."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column as Arrow does. Raises pa.ArrowInvalid also for what Arrow would drop: the time of day of a
    timestamp that becomes a date, and the fields of a struct that have other names.

    >>> import datetime
    >>> noon = pa.array([datetime.datetime(2026, 1, 1, 12)])
    >>> cast_exactly(noon, pa.date32())
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: 2026-01-01 12:00:00.000000 has a time of day
    >>> cast_exactly(pa.array([{"a": 1}]), pa.struct({"A": pa.int64()}))
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: it has 'a', which is not in the type, and lacks 'A'
    """
    if column.null_count < len(column) and (names := _renamed(column.type, kind)):
        was, wanted = (", ".join(map(repr, side)) for side in names)
        raise pa.ArrowInvalid(f"it has {was}, which is not in the type, and lacks {wanted}")
    made = column.cast(kind)
    if pa.types.is_date(kind) and pa.types.is_timestamp(column.type):
        later = column.filter(pc.not_equal(made.cast(column.type), column))
        if len(later):
            raise pa.ArrowInvalid(f"{later.cast(pa.string())[0]} has a time of day")
    return made


def _renamed(was: pa.DataType, kind: pa.DataType) -> tuple[list[str], list[str]] | None:
    """The names of fields that only the one or only the other has, of the first struct of which both have some."""
    if pa.types.is_struct(was) and pa.types.is_struct(kind):
        one, other = ({field.name: field.type for field in each} for each in (was, kind))
        gone, new = sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())
        if gone and new:
            return gone, new
        pairs = [(one[name], other[name]) for name in one if name in other]
    elif was.num_fields == kind.num_fields:
        pairs = [(was.field(place).type, kind.field(place).type) for place in range(was.num_fields)]
    else:
        pairs = []
    return next(filter(None, (_renamed(*pair) for pair in pairs)), None)
