"""The first rows of a result table, for whoever wants to see what is in it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from coset.batches.tables.logs import opened
from partitioning.model.graph import quote
from spark_jobs.sql.database import connect
from spark_jobs.tables.table_schema import RESIDUE, folder


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Some rows of a table, in the order of its columns; how many it has, and in which version."""

    rows: pa.Table
    of: int
    version: int


def first_rows(store_root: str, table: str, most: int) -> FirstRows | None:
    """Up to `most` rows of a table as it is now, without the column by which it is partitioned. None if there is no
    table yet.

    Times are text, as Python has no infinite ones. Raises Refused if the table cannot be read.
    """
    with opened(folder(store_root, table)) as there:
        if there is None:
            return None
        held = there.to_pyarrow_dataset()
        columns = ", ".join(_shown(field) for field in held.schema if field.name != RESIDUE)
        with connect() as connection:
            connection.register("held", held)
            rows = connection.execute(f"SELECT {columns} FROM held ORDER BY ALL LIMIT {most:d}").to_arrow_table()
        return FirstRows(rows, held.count_rows(), there.version())


def _shown(field: pa.Field) -> str:
    name = quote(field.name)
    return f"{name}::VARCHAR AS {name}" if pa.types.is_temporal(field.type) else name
