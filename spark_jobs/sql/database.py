"""The database that runs the steps: DuckDB, shut off from everything but what it is given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb

from partitioning.model.graph import Step, quote, state_of


def connect(memory_limit: str = "1GB", temp: Path | None = None, threads: int = 1) -> duckdb.DuckDBPyConnection:
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
            "threads": str(threads),
        }
    )
    # Local time zones would give the same plan other results on another machine.
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection


def create_state(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    """Make an empty table of what a step that says so keeps, over relations that are there already."""
    if step.state and step.state.sql:
        connection.execute(f"CREATE TEMP TABLE {quote(state_of(step.name))} AS {step.state.sql} LIMIT 0")


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Make each step a view, over relations that are named as the streams and are there already."""
    for step in steps:
        connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")
