"""The port of the parties: each is a session that runs the workload's query on request."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

CORES = 2
MASTER = f"local[{CORES}]"

# One run, by number. Returns the files that it wrote and the bytes that it shuffled.
Run = Callable[[int], tuple[list[str], int]]

# Title, module and function of each party. Modules are separate so that none pays for another's imports.
PARTIES = {
    "coset": ("Coset, proved", "bench.on_coset", "proved"),
    "coset-unproved": ("Coset without its proof", "bench.on_coset", "unproved"),
    "pyspark": ("plain PySpark, adaptive", "bench.on_spark", "plain"),
    "duckdb": ("DuckDB, one process", "bench.on_duckdb", "one_process"),
    "duckdb-cosets": ("DuckDB, a process per core", "bench.on_duckdb", "process_per_core"),
}


def emptied(folder: Path) -> Path:
    """The folder, emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def shuffled(spark: object) -> int:
    """The bytes that a SparkContext's application has shuffled so far."""
    executors = spark._jsc.sc().statusStore().executorList(True).iterator()  # type: ignore[attr-defined]
    total = 0
    while executors.hasNext():
        total += executors.next().totalShuffleWrite()
    return total
