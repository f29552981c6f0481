"""The port of the parties: each is a session that answers a query on request.

Parties of other versions of Spark import this, and have nothing but PySpark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.workload import Query, Workload

CORES = 2
MASTER = f"local[{CORES}]"
# Those of streams of 8 and of 12 partitions.
COSETS = 4
# Where a party finds the jars that its POM names.
JARS = "COSET_BENCH_JARS"


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left: files, bytes and perhaps records that moved between tasks, and the most records of a task beside
    those of the mean one, if known."""

    files: Sequence[str]
    moved: int = 0
    moved_records: int | None = None
    longest: float | None = None


# One run, by number, at a point of the workload. What it left is looked at later, which is not counted.
Run = Callable[[int, Workload], Callable[[], Left]]

_TWO_STREAMS = Query.COUNTED, Query.IN_TIME
_SKEWED = Query.HOT, Query.HOT_JOINED
_BY_POINT = Query.BY_RECORDS, Query.BY_SHARE
_KERNELS = *_TWO_STREAMS, Query.MERGED, *_SKEWED
_TOTALS = Query.BATCHES, Query.RESCALED
_CHANGING = Query.CHANGING, Query.CHANGING_JOINED


@dataclass(frozen=True, slots=True)
class Party:
    """A way to answer some queries. Modules are separate so that none pays for another's imports.

    A party of another version of `pyspark` has an environment of its own, and the jars that a `pom` names. What it has
    to `prepare` is not counted.
    """

    title: str
    module: str
    function: str
    answers: tuple[Query, ...]
    prepare: str | None = None
    pyspark: str | None = None
    pom: str | None = None


def _coset(title: str, *answers: Query) -> Party:
    return Party(title, "bench.on_coset", "kernel", answers, "prepare")


PARTIES = {
    "coset": _coset("Coset, proved", *_KERNELS, Query.ELASTIC, *_BY_POINT),
    "coset-unproved": _coset("Coset without its proof", *_TWO_STREAMS),
    "coset-groups": _coset("Coset, proved, a group per core", Query.ELASTIC),
    "coset-moving": _coset("Coset, made to move all", Query.MERGED),
    "coset-unsplit": _coset("Coset, hot keys left", *_SKEWED, Query.BY_SHARE),
    "coset-resident": Party("Coset, whole batches, resident", "bench.on_coset", "resident", (*_TOTALS, *_CHANGING)),
    "coset-local": Party("Coset, whole batches, no Spark", "bench.on_coset", "without_spark", _CHANGING),
    "streaming": Party("Structured Streaming, RocksDB", "bench.state", "streaming", _TOTALS),
    "pyspark": Party("plain PySpark 4.2, adaptive", "bench.on_spark", "plain", (*_KERNELS, Query.ELASTIC, *_BY_POINT)),
    "pyspark-totals": Party("plain PySpark 4.2, all totals anew", "bench.state", "anew", (*_TOTALS, *_CHANGING)),
    "pyspark-arrow": Party("PySpark 4.2, `cogroup().applyInArrow`", "bench.on_spark_arrow", "cogrouped", _TWO_STREAMS),
    "comet": Party(
        "Spark 3.5 with Comet 0.12",
        "bench.on_spark",
        "comet",
        (*_KERNELS, *_BY_POINT),
        pyspark="3.5.8",
        pom="comet.pom.xml",
    ),
    "iceberg": Party(
        "Spark 4.1 with Iceberg's buckets",
        "bench.on_iceberg",
        "buckets",
        _KERNELS,
        "rewrite",
        "4.1.4",
        "iceberg.pom.xml",
    ),
    "polars": Party("Polars", "bench.on_polars", "streaming", (*_KERNELS, *_BY_POINT)),
    "duckdb": Party("DuckDB, one process", "bench.on_duckdb", "one_process", (*_KERNELS, *_BY_POINT, *_CHANGING)),
    "duckdb-cosets": Party(
        "DuckDB, a process per core",
        "bench.on_duckdb",
        "process_per_core",
        (*_TWO_STREAMS, Query.ELASTIC, Query.BY_RECORDS),
    ),
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


def arrive(workload: Workload, run: int) -> Path:
    """The folder that has the files of a run and of all before it, for who reads them from the local disk."""
    folder = workload.results.with_name(f"{workload.party}-arrived")
    if run == 0:
        emptied(folder)
    for file in workload.round(run):
        there = folder / file.relative_to(workload.landed)
        there.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, there)
    return folder


def shuffled(spark: object) -> int:
    """The bytes that a SparkContext's application has shuffled so far."""
    executors = spark._jsc.sc().statusStore().executorList(True).iterator()  # type: ignore[attr-defined]
    total = 0
    while executors.hasNext():
        total += executors.next().totalShuffleWrite()
    return total
