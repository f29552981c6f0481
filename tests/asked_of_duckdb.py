"""The rows of a result table, and those that DuckDB gives of the same records."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from coset.testing import queries
from coset.testing.runs import Trial
from partitioning.documents.store import Store
from tests.logs import log_of

Row = tuple[object, ...]


def published(store: Store, table: str = "t") -> list[Row]:
    """All rows of a result table, in the order of their texts."""
    return in_order(list(zip(*log_of(store, table).to_pyarrow_table().to_pydict().values(), strict=True)))


def is_its_query(place: Trial, table: str) -> bool:
    """Whether a table that has a query is what DuckDB answers to it."""
    try:
        assert table not in queries.check(place.pipeline, place.root)
    except AssertionError:
        return False
    return True


def direct(sql: str, **tables: pa.Table) -> list[Row]:
    """What DuckDB answers, in the same order."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return in_order(connection.execute(sql).fetchall())


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=str)
