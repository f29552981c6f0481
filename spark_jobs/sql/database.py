"""What steps are in a DuckDB database: tables and views with their columns."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from coset.sources.file_columns import NULL_TYPE
from partitioning.model.graph import Step, quote, state_of


def create_state(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    """Create an empty table with the columns of a step's state, if SQL defines them. Its inputs have to exist."""
    if step.state and step.state.sql:
        connection.execute(f"CREATE TEMP TABLE {quote(state_of(step.name))} AS {step.state.sql} LIMIT 0")


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Create a view for each step. The relations that it reads have to exist."""
    for step in steps:
        connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")


def null_columns(connection: duckdb.DuckDBPyConnection, name: str) -> frozenset[str]:
    """The columns of a stream or step, in small letters, that are NULL in each row and so of no type, which `DESCRIBE`
    calls INTEGER."""
    described = connection.execute(f"DESCRIBE {quote(name)}").fetchall()
    columns = [column for column, kind, *_ in described if kind == "INTEGER"]
    if not columns:
        return frozenset()
    types = ", ".join(f"typeof(given.{quote(column)})" for column in columns)
    sql = f"SELECT {types} FROM (SELECT 1) LEFT JOIN {quote(name)} AS given ON false"
    found = connection.execute(sql).fetchall()[0]
    return frozenset(column.lower() for column, kind in zip(columns, found, strict=True) if kind == NULL_TYPE)
