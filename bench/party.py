"""The port of the parties: each is a session that answers the workload's query on request.

Parties of other versions of Spark import this, and have nothing but PySpark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CORES = 2
MASTER = f"local[{CORES}]"
# Where a party finds the jars that its POM names.
JARS = "COSET_BENCH_JARS"

# One run, by number. Returns the files that it wrote and the bytes that it shuffled.
Run = Callable[[int], tuple[list[str], int]]


@dataclass(frozen=True, slots=True)
class Party:
    """A way to answer the query. Modules are separate so that none pays for another's imports.

    A party of another version of `pyspark` has an environment of its own, and the jars that a `pom` names. What it has
    to `prepare` is not counted.
    """

    title: str
    module: str
    function: str
    pyspark: str | None = None
    pom: str | None = None
    prepare: str | None = None


PARTIES = {
    "coset": Party("Coset, proved", "bench.on_coset", "proved"),
    "coset-unproved": Party("Coset without its proof", "bench.on_coset", "unproved"),
    "pyspark": Party("plain PySpark 4.2, adaptive", "bench.on_spark", "plain"),
    "pyspark-arrow": Party("PySpark 4.2, `cogroup().applyInArrow`", "bench.on_spark_arrow", "cogrouped"),
    "comet": Party("Spark 3.5 with Comet 0.12", "bench.on_comet", "comet", "3.5.8", "comet.pom.xml"),
    "iceberg": Party(
        "Spark 4.1 with Iceberg's join of buckets", "bench.on_iceberg", "buckets", "4.1.4", "iceberg.pom.xml", "rewrite"
    ),
    "polars": Party("Polars", "bench.on_polars", "streaming"),
    "duckdb": Party("DuckDB, one process", "bench.on_duckdb", "one_process"),
    "duckdb-cosets": Party("DuckDB, a process per core", "bench.on_duckdb", "process_per_core"),
}


def jar(name: str) -> str:
    """The path of the only jar of this name that the party's POM brought."""
    (found,) = Path(os.environ[JARS]).glob(f"{name}-*.jar")
    return str(found)


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
