"""What steps are in a DuckDB database: tables and views with their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

import duckdb

from coset.sources.file_columns import NULL_TYPE
from partitioning.model.graph import Step, quote, state_of
from partitioning.model.streams import Column


def create_state(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    """Create an empty table with the columns of a step's state, if SQL defines them. Its inputs have to exist."""
    if step.state and step.state.sql:
        connection.execute(f"CREATE TEMP TABLE {quote(state_of(step.name))} AS {step.state.sql} LIMIT 0")


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Create a view for each step. The relations that it reads have to exist."""
    for step in steps:
        connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")


# DuckDB describes a bare NULL so from its version 2 on.
_NULL_DESCRIBED = re.compile(f"{NULL_TYPE}(?=$|[],)[])")


def described(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Column, ...]:
    """The columns of a query or relation. A bare NULL is an INTEGER, which a table makes of it.

    >>> [column.type for column in described(duckdb.connect(), "SELECT NULL, [], {'NULL': 1.5}")]
    ['INTEGER', 'INTEGER[]', 'STRUCT("NULL" DECIMAL(2,1))']
    """
    rows = connection.execute(f"DESCRIBE {sql}").fetchall()
    return tuple(Column(name, _NULL_DESCRIBED.sub("INTEGER", kind)) for name, kind, *_ in rows)


def null_columns(connection: duckdb.DuckDBPyConnection, name: str) -> frozenset[str]:
    """The columns of a stream or step, in small letters, that are NULL in each row and so of no type."""
    columns = [column.name for column in described(connection, quote(name)) if column.type == "INTEGER"]
    if not columns:
        return frozenset()
    types = ", ".join(f"typeof(given.{quote(column)})" for column in columns)
    sql = f"SELECT {types} FROM (SELECT 1) LEFT JOIN {quote(name)} AS given ON false"
    found = connection.execute(sql).fetchall()[0]
    return frozenset(column.lower() for column, kind in zip(columns, found, strict=True) if kind == NULL_TYPE)
