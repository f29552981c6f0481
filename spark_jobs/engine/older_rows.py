"""Older rows: those that a step kept in other columns, read as rows of the columns that it keeps now."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from coset.sources.databases import connect_to_ask
from partitioning.commands import Replan
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.order import POSITION
from partitioning.model.stage_inputs import StateInput


class Versions:
    """Makes rows of earlier versions of a state rows of now. Several threads may not call it at once."""

    def __init__(self, read: StateInput, pipeline: str) -> None:
        self._read = read
        self._pipeline = pipeline
        self._connection = connect_to_ask() if read.versions else None

    def __call__(self, rows: pa.RecordBatch, version: int, schema: pa.Schema) -> pa.RecordBatch:
        """The same rows, each at its position, in the columns of `schema`. Raises Refused if an expression fails."""
        assert self._connection is not None
        sql, place = "kept_before", quote(POSITION)
        for reading in self._read.versions[version - 1].readings:
            sql = f"(SELECT {reading}, {place} FROM {sql})"
        self._connection.register("kept_before", pa.Table.from_batches([rows]))
        try:
            made = self._connection.sql(f"FROM {sql}").to_arrow_table()
        except duckdb.Error as error:
            what = f"rows that were kept cannot be read as rows of now: {' '.join(str(error).split())}"
            then = ("correct begins= in the pipeline, then ", Replan(self._pipeline))
            raise Refused.of(Kind.SQL, what, f"state of {self._read.step}", then, step=self._read.step) from error
        finally:
            self._connection.unregister("kept_before")
        return pa.RecordBatch.from_arrays(
            [made[field.name].cast(field.type).combine_chunks() for field in schema], schema=schema
        )
