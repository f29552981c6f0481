"""The DuckDB database that runs steps. It can reach nothing but the relations that are put into it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import duckdb

from partitioning.model.graph import Step, quote, state_of


def connect(memory_limit: str = "1GB", temp: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory without files, network, extensions or Python variables.

    Data beyond `memory_limit` is spilled to the folder `temp`. Without a folder it is an error.
    """
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": memory_limit,
            "python_enable_replacements": "false",
            "temp_directory": str(temp or ""),
            "threads": "1",
        }
    )
    # A local time zone would make results depend on the machine.
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection


def connect_to_ask() -> duckdb.DuckDBPyConnection:
    """A connection for questions about SQL that need no rows.

    All such connections share one database, because a new one is slow. Use temporary objects only: each connection has
    its own.
    """
    return _database_to_ask(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database_to_ask(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process. A forked process must not use its parent's."""
    return connect()


def create_state(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    """Create an empty table with the columns of a step's state, if SQL defines them. Its inputs have to exist."""
    if step.state and step.state.sql:
        connection.execute(f"CREATE TEMP TABLE {quote(state_of(step.name))} AS {step.state.sql} LIMIT 0")


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Create a view for each step. The relations that it reads have to exist."""
    for step in steps:
        connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")


# The type of a bare NULL, which `DESCRIBE` calls INTEGER.
NULL_TYPE = '"NULL"'


def null_columns(connection: duckdb.DuckDBPyConnection, name: str) -> frozenset[str]:
    """The columns of a stream or step, in small letters, that are NULL in each row and so of no type."""
    described = connection.execute(f"DESCRIBE {quote(name)}").fetchall()
    columns = [column for column, kind, *_ in described if kind == "INTEGER"]
    if not columns:
        return frozenset()
    types = ", ".join(f"typeof(given.{quote(column)})" for column in columns)
    sql = f"SELECT {types} FROM (SELECT 1) LEFT JOIN {quote(name)} AS given ON false"
    found = connection.execute(sql).fetchall()[0]
    return frozenset(column.lower() for column, kind in zip(columns, found, strict=True) if kind == NULL_TYPE)
