"""The DuckDB database in which a process runs the SQL of tasks."""

from __future__ import annotations

import os
import tempfile
from functools import cache

import duckdb

from coset.sources.databases import also_to_ask, answers, new_database
from partitioning.model.task_engine import MEMORY, TaskMemory
from spark_jobs.engine.task_folder import KeptFolder


def connect(memory: str = MEMORY) -> duckdb.DuckDBPyConnection:
    """A connection to run SQL in a task that has so much `memory`. Data beyond is spilled to a folder for temporary
    files.

    All connections of a process with the same memory share one database, because a new one is slow. Use temporary
    objects only: each connection has its own.
    """
    if not opened(memory).works():
        _database.cache_clear()
    return opened(memory).connection.cursor()


def opened(memory: str = MEMORY) -> _Database:
    """The database of this process, which is opened with the first call. Then it can be asked too."""
    return _database(os.getpid(), tempfile.gettempdir(), memory)


class _Database:
    """A database and the folder that it spills to."""

    def __init__(self, memory: str) -> None:
        self._folder = KeptFolder()
        self.connection = new_database(f"{TaskMemory.of(memory).database}B", self._folder.path)
        also_to_ask(self.connection)

    def works(self) -> bool:
        """Whether it still answers and has its folder."""
        return answers(self.connection) and self._folder.path.exists()


@cache
def _database(process: int, folder: str, memory: str) -> _Database:
    """The database of a process. A forked process must not use its parent's."""
    return _Database(memory)
