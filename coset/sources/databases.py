"""The DuckDB databases of a process. They can reach nothing but the relations that are put into them."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import duckdb


def connect_to_ask() -> duckdb.DuckDBPyConnection:
    """A connection for questions about SQL and types, and about few rows.

    All such connections share one database, because a new one is slow. Use temporary objects only: each connection has
    its own.
    """
    if not answers(_database_to_ask(os.getpid())):
        _database_to_ask.cache_clear()
    return _database_to_ask(os.getpid()).cursor()


def answers(database: duckdb.DuckDBPyConnection) -> bool:
    """Whether a database still answers, which it does not after some errors."""
    try:
        database.cursor().execute("SELECT 1").fetchall()
    except duckdb.Error:
        return False
    return True


@lru_cache(maxsize=1)
def _database_to_ask(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process. A forked process must not use its parent's."""
    return new_database("1GB", None)


def new_database(memory: str, temp: Path | None) -> duckdb.DuckDBPyConnection:
    """A database in memory without files, network, extensions or Python variables.

    Data beyond `memory` is spilled to the folder `temp`. Without a folder it is an error.
    """
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": memory,
            "python_enable_replacements": "false",
            "temp_directory": str(temp or ""),
            "threads": "1",
            # Those with which 2 would read files.
            **({"async_threads": "0"} if int(duckdb.__version__.partition(".")[0]) >= 2 else {}),
        }
    )
    # A local time zone would make results depend on the machine.
    database.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false")
    database.execute("SET enable_external_access = false; SET lock_configuration = true")
    return database
