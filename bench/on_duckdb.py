"""DuckDB alone, on the files on the local disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import gcd
from pathlib import Path

import duckdb

from bench.party import CORES, Run, emptied
from bench.workload import WITHIN_SECONDS, Query, Workload

_QUERIES = {
    Query.COUNTED: """
        SELECT coalesce(v.key, c.key) AS key, views, viewed, clicks, clicked
        FROM (SELECT key, count(*) AS views, sum(amount)::BIGINT AS viewed FROM read_parquet({views}) GROUP BY key) AS v
        FULL JOIN (
            SELECT key, count(*) AS clicks, sum(amount)::BIGINT AS clicked FROM read_parquet({clicks}) GROUP BY key
        ) AS c ON v.key = c.key
    """,
    Query.IN_TIME: f"""
        SELECT v.key, count(*) AS pairs, sum(v.amount + c.amount)::BIGINT AS paired
        FROM read_parquet({{views}}) AS v JOIN read_parquet({{clicks}}) AS c
        ON v.key = c.key AND abs(epoch_us(v.time) - epoch_us(c.time)) <= {WITHIN_SECONDS * 1_000_000}
        GROUP BY v.key
    """,
}


@contextmanager
def one_process(workload: Workload) -> Iterator[Run]:
    """DuckDB in one process on all cores."""
    files = {topic.name: [str(workload.landed / topic.name / "*" / "*.parquet")] for topic in workload.topics}
    with duckdb.connect(config={"threads": str(CORES)}) as connection:

        def run(number: int) -> tuple[list[str], int]:
            out = emptied(workload.results("duckdb")) / "all.parquet"
            _copy(connection, workload.query, files, out)
            return [str(out)], 0

        yield run


@contextmanager
def process_per_core(workload: Workload) -> Iterator[Run]:
    """DuckDB on one thread in one process for each core, one coset of keys at a time: the limit."""
    cosets = 4
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:

        def run(number: int) -> tuple[list[str], int]:
            out = emptied(workload.results("duckdb-cosets"))
            work = [(workload, out / f"{task}.parquet", task, cosets) for task in range(cosets)]
            return pool.starmap(_copy_coset, work, chunksize=1), 0

        yield run


def _copy_coset(workload: Workload, out: Path, task: int, cosets: int) -> str:
    files = {
        topic.name: [
            str(workload.landed / topic.name / f"partition={partition}" / "*.parquet")
            for partition in range(topic.partitions)
            if (partition - task) % gcd(topic.partitions, cosets) == 0
        ]
        for topic in workload.topics
    }
    with duckdb.connect(config={"threads": "1"}) as connection:
        _copy(connection, workload.query, files, out)
    return str(out)


def _copy(connection: duckdb.DuckDBPyConnection, query: Query, files: Mapping[str, list[str]], out: Path) -> None:
    asked = _QUERIES[query].format(**{name: str(paths) for name, paths in files.items()})
    connection.execute(f"COPY ({asked}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
