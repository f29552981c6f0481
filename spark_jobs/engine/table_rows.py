"""Rows of a table as they come and go: what is left of each key, of which a table has at most one row at a time."""

from __future__ import annotations

import duckdb

from partitioning.model.graph import quote
from partitioning.model.streams import DELETED

_DELETED = quote(DELETED)
_SIGN = f"CASE WHEN {_DELETED} THEN -1 ELSE 1 END"


def left_of_each(
    connection: duckdb.DuckDBPyConnection, name: str, key: str, offset: str, kept: str
) -> tuple[object, int] | None:
    """Leave one record of each key in a relation of records that come or go: its new row, or that it is gone; none if
    all that came has gone again. The relation `kept` has the rows of before. Returns a key that would have another
    number of rows than one or none, and that number.

    Rows that come and go again are known by their values: an engine may write the new row of a key first.
    """
    run, records, counts = connection.execute, f"temp.{quote(name)}", f"temp.{quote(f'{name}@counts')}"
    had = f"SELECT {key}, count(*) AS had FROM {kept} GROUP BY 1"
    came = (
        f"SELECT {key}, count(*) AS records, sum({_SIGN}) AS change FROM {records} WHERE {key} IS NOT NULL GROUP BY 1"
    )
    rows = f"SELECT {key}, records, coalesce(had, 0) + change AS rows FROM ({came}) LEFT JOIN ({had}) USING ({key})"
    run(f"CREATE TEMP TABLE {counts} AS {rows}")
    if found := run(f"SELECT {key}, rows FROM {counts} WHERE rows NOT IN (0, 1) LIMIT 1").fetchone():
        return found[0], found[1]
    several = f"(SELECT {key} FROM {counts} WHERE records > 1)"
    alike = (
        f"SELECT * EXCLUDE ({_DELETED}, {offset}), max({offset}) FILTER (NOT {_DELETED}) AS latest "
        f"FROM {records} SEMI JOIN {several} USING ({key}) GROUP BY ALL HAVING sum({_SIGN}) > 0"
    )
    latest = f"(SELECT {key}, max(latest) FROM ({alike}) GROUP BY 1)"
    run(f"DELETE FROM {records} WHERE {key} IN {several} AND ({key}, {offset}) NOT IN {latest}")
    gone = f"SELECT {key}, true AS {_DELETED} FROM {counts} WHERE rows = 0 AND records > 1"
    run(f"DELETE FROM {records} WHERE {key} IN (SELECT {key} FROM ({gone}))")
    run(f"INSERT INTO {records} BY NAME {gone}")
    run(f"DROP TABLE {counts}")
    return None
