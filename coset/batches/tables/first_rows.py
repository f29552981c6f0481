"""The first rows of a result table, for whoever wants to see what is in it."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from coset.batches.tables.logs import opened_there
from spark_jobs.tables.table_schema import RESIDUE


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Some rows of a table, in the order of its columns; how many it has, and in which version."""

    rows: pa.Table
    of: int
    version: int


def first_rows(store_root: str, table: str, most: int) -> FirstRows:
    """Up to `most` rows of a table as it is now, without the column by which it is partitioned.

    Raises Refused if there is no such table, or it cannot be read.
    """
    with opened_there(store_root, table) as there:
        version, held = there.version(), there.to_pyarrow_dataset()
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("held", held)
        columns = ", ".join('"{}"'.format(name.replace('"', '""')) for name in held.schema.names if name != RESIDUE)
        rows = connection.execute(f"SELECT {columns} FROM held ORDER BY ALL LIMIT {most:d}").fetch_arrow_table()
        return FirstRows(rows, held.count_rows(), version)
