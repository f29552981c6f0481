"""Rows of a result table: the first, for people to look at, and all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from coset.batches.tables.held import deleted
from coset.batches.tables.logs import opened_at, opened_whole
from coset.batches.tables.table_reader import count_live, live_rows
from coset.sources.plain_arrays import legible
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.graph import quote
from partitioning.model.private import is_private, masked
from spark_jobs.engine.task_database import connect
from spark_jobs.tables.table_schema import RESIDUE, folder


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Rows of a table, ordered by its columns, with the table's number of rows and its version."""

    rows: pa.Table
    of: int
    version: int


def first_rows(store: Store, table: str, most: int, private: Collection[str] = ()) -> FirstRows | None:
    """Up to `most` rows of a table as it is now, without its partition column. None if there is no table yet.

    Values of `private` columns are masked. Times are text, because Python has no infinite ones. Raises Refused if the
    table cannot be read.
    """
    with opened_whole(folder(store, table)) as there:
        if there is None:
            return None
        return FirstRows(in_order(live_rows(there), most, private), count_live(there), there.version())


@contextmanager
def all_rows(store: Store, table: str, version: int | None = None, since: int = 0) -> Iterator[pa.RecordBatchReader]:
    """All rows of a table as it is now, or was in a version; of one with lineage also those `since` a batch alone.
    Raises Refused if there is none, or if it cannot be read."""
    where = folder(store, table)
    with opened_whole(where) if version is None else opened_at(where, version) as there:
        if there is None:
            raise Refused(deleted(where))
        yield live_rows(there, where=f"{quote('_batch')} >= {since:d}" if since else "true")


def in_order(held: pa.RecordBatchReader, most: int, private: Collection[str]) -> pa.Table:
    """Up to `most` rows, ordered by their columns, as `first_rows` gives them."""
    columns = ", ".join(_shown(field, private) for field in held.schema if field.name != RESIDUE)
    with connect() as connection:
        connection.register("held", held)
        return legible(connection.sql(f"SELECT {columns} FROM held ORDER BY ALL LIMIT {most:d}").to_arrow_table())


def _shown(field: pa.Field, private: Collection[str]) -> str:
    name = quote(field.name)
    if is_private(field.name, private):
        return masked(name)
    return f"{name}::VARCHAR AS {name}" if pa.types.is_temporal(field.type) else name
