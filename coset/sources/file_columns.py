"""The columns of a landed file: their DuckDB types, and which allow nulls. Casts of columns to the types that a
pipeline declares, in which no value becomes another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.databases import connect_to_ask
from coset.sources.plain_arrays import plain_array, plain_type, rebuilt, texts_of_uuids
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.streams import Column, Stream

# DuckDB's name of the type of what is null in all rows.
NULL_TYPE = '"NULL"'


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The schema of a file."""

    columns: tuple[Column, ...]
    required: frozenset[str]


class UnknownType(Exception):
    """Raised for a column type that DuckDB does not have."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        super().__init__(", ".join(f"column {field.name!r} is {field.type}" for field in fields))


@lru_cache(maxsize=64)
def columns_of(schema: pa.Schema) -> FileColumns:
    """The columns of an Arrow schema. Raises UnknownType."""
    required = frozenset(field.name for field in schema if not field.nullable)
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    with connect_to_ask() as connection:
        try:
            relation = connection.from_arrow(pa.Table.from_batches([], plain))
        except duckdb.Error as error:
            unknown = [
                field for field, as_plain in zip(schema, plain, strict=True) if not _is_known(connection, as_plain)
            ]
            raise UnknownType(unknown) from error
        # DuckDB would rename one of two names that differ by case only.
        types = zip(schema.names, relation.types, strict=True)
        return FileColumns(tuple(Column(name, str(kind)) for name, kind in types), required)


@lru_cache(maxsize=64)
def type_named(text: str) -> str | None:
    """DuckDB's name of a type that is given by any of its names. None if there is no such type."""
    with connect_to_ask() as connection:
        try:
            return str(connection.sql(f"SELECT NULL::{text} AS value").types[0])
        except duckdb.Error:
            return None


def types_named(declared: Mapping[str, str]) -> dict[str, str]:
    """DuckDB's names of the types of declared columns, without those that are none."""
    return {name: kind for name, written in declared.items() if (kind := type_named(written))}


def typeless(stream: Stream, declared: Mapping[str, str]) -> Iterator[Finding]:
    """The declared columns of a stream whose type does not exist."""
    for name, written in declared.items():
        if type_named(written) is None:
            what = f"column {name!r} is declared as {written!r}, which is no type"
            where, then = f"stream {stream.name!r}", "name a type as DuckDB has it"
            yield Finding.of(Kind.DECLARATION, what, where, then, column=name, type=written)


def _is_known(connection: duckdb.DuckDBPyConnection, field: pa.Field) -> bool:
    try:
        connection.from_arrow(pa.Table.from_batches([], pa.schema([field])))
    except duckdb.Error:
        return False
    return True


@cache
def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Columns as DuckDB gives them, dictionaries decoded; times with a time zone are in UTC."""
    if not columns:
        return pa.schema([])
    nulls = ", ".join(f"NULL::{column.type}" for column in columns)
    with connect_to_ask() as connection:
        kinds = connection.sql(f"SELECT {nulls}").to_arrow_table().schema.types
    return pa.schema([pa.field(column.name, _plain(kind)) for column, kind in zip(columns, kinds, strict=True)])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.tz:
        kind = pa.timestamp(kind.unit, "UTC")
    return kind


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


def arrow_has(kind: str | None) -> str | None:
    """The type. None if Arrow has no values of it, in which files are read."""
    try:
        return kind if kind is None or arrow_schema((Column("it", kind),)) else None
    except duckdb.Error:
        return None
