"""The Arrow schema of columns whose types are DuckDB's."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from coset.sources.databases import connect_to_ask
from partitioning.model.streams import Column


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
