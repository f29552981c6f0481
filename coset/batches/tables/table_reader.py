"""Reads the rows of a table that live."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from partitioning.model.graph import quote


def live_rows(table: DeltaTable, columns: Sequence[str] = (), where: str = "true") -> pa.RecordBatchReader:
    """These columns of the rows of a table, all by default, for which a condition in SQL is true.

    delta-rs's own engine reads them, as its dataset for PyArrow refuses tables that have dead rows. Raises delta-rs's
    errors.
    """
    every = pa.schema(table.schema().to_arrow())
    schema = pa.schema([every.field(name) for name in columns or every.names])
    return _asked(table, f"SELECT {', '.join(map(quote, schema.names))} FROM rows WHERE {where}").cast(schema)


def count_live(table: DeltaTable) -> int:
    """How many rows of a table live. Raises delta-rs's errors."""
    return int(_asked(table, "SELECT count(*) FROM rows").read_all()[0][0].as_py())


def _asked(table: DeltaTable, sql: str) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(QueryBuilder().register("rows", table).execute(sql))
