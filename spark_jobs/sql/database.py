"""The database that runs the steps: DuckDB, shut off from everything but what it is given."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import duckdb

from partitioning.model.graph import Step, quote, state_of


def connect(memory_limit: str = "1GB", temp: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that can reach nothing: no files, no network, no extensions, no Python variables.

    What does not fit into `memory_limit` goes to the folder `temp`; without one it is an error.
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
    # Local time zones would give the same plan other results on another machine.
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection


def connect_to_ask() -> duckdb.DuckDBPyConnection:
    """A connection to ask what SQL means and gives, without rows: as `connect`, but all share one database.

    A database takes long to make. What is made for a question has to be temporary: then it is the connection's own.
    """
    return _database_to_ask(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database_to_ask(process: int) -> duckdb.DuckDBPyConnection:
    """That of a process: none goes along into those that are forked."""
    return connect()


def create_state(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    """Make an empty table of what a step that says so keeps, over relations that are there already."""
    if step.state and step.state.sql:
        connection.execute(f"CREATE TEMP TABLE {quote(state_of(step.name))} AS {step.state.sql} LIMIT 0")


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Make each step a view, over relations that are named as the streams and are there already."""
    for step in steps:
        connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")
