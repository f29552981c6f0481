"""Casts of landed columns to the types that a pipeline declares, in which no value becomes another."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.plain_arrays import plain_array, rebuilt, texts_of_uuids

# The most of each unit that DuckDB can make a TIMESTAMP of. The next one is infinity, or what no cast can take.
_MOST = {"s": 2**63 // 10**6 - 1, "ms": 2**63 // 10**3 - 1, "ns": 2**63 - 2}
_HAS_UUIDS = "arrow.uuid"


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column as Arrow does. Raises pa.ArrowInvalid also for what Arrow would drop: the time of day of a
    timestamp that becomes a date, and the fields of a struct that have other names; and for a time that DuckDB takes
    for infinity, or cannot make a TIMESTAMP of.

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
    column = plain_array(column)
    if _HAS_UUIDS in str(column.type) and _HAS_UUIDS not in str(kind):
        column = texts_of_uuids(column)
    made = column.cast(kind)
    if has_limits(kind):
        rebuilt([made], _limited)
    if pa.types.is_date(kind) and pa.types.is_timestamp(column.type):
        later = column.filter(pc.not_equal(made.cast(column.type), column))
        if len(later):
            raise pa.ArrowInvalid(f"{later.cast(pa.string())[0]} has a time of day")
    return made


def keeps_values(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether all values can be cast, and none of them is another one when it is cast back.

    >>> keeps_values(pa.array(["7", None]), pa.int64()), keeps_values(pa.array(["07"]), pa.int64())
    (True, False)
    """
    plain = plain_array(column)
    try:
        return bool(cast_exactly(plain, kind).cast(plain.type).equals(plain))
    except pa.ArrowException:
        return False


def has_limits(kind: pa.DataType) -> bool:
    """Whether a type has times, of itself or within, of which `cast_exactly` refuses some."""
    return any(f"timestamp[{unit}" in str(kind) for unit in _MOST)


def _limited(parts: Sequence[pa.Array]) -> pa.Array:
    (times,) = parts
    if has_limits(times.type):
        unit, most = times.type.unit, _MOST[times.type.unit]
        bounds = pc.min_max(times.cast(pa.int64())).as_py()
        for bound in (bounds["min"] or 0, bounds["max"] or 0):
            if abs(bound) > most:
                raise pa.ArrowInvalid(f"{bound} {unit} since 1970 is no time in SQL")
    return times


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
