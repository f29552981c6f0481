"""The columns of a landed file: their DuckDB types, and which allow nulls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import duckdb
import pyarrow as pa

from coset.sources.databases import connect_to_ask
from coset.sources.plain_arrays import plain_type
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
