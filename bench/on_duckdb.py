"""DuckDB alone, on the files on the local disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd
from pathlib import Path

import duckdb

from bench.party import CORES, COSETS, Left, Run, arrive, emptied
from bench.workload import WITHIN_SECONDS, Query, Workload

_COUNTED = """
    SELECT coalesce(v.key, c.key) AS key, views, viewed, clicks, clicked
    FROM (SELECT key, count(*) AS views, sum(amount)::BIGINT AS viewed FROM {views} GROUP BY key) AS v
    FULL JOIN (SELECT key, count(*) AS clicks, sum(amount)::BIGINT AS clicked FROM {clicks} GROUP BY key) AS c
    ON v.key = c.key
"""
_TOTALS = "SELECT key, count(*) AS records, sum(amount)::BIGINT AS amount FROM {events} GROUP BY key"
_NEWEST = "(SELECT key, unnest(max_by(struct_pack(team, amount), seen)) FROM {members} GROUP BY key)"
_QUERIES = {
    Query.COUNTED: _COUNTED,
    Query.ELASTIC: _COUNTED,
    Query.BY_RECORDS: _COUNTED,
    Query.IN_TIME: f"""
        SELECT v.key, count(*) AS pairs, sum(v.amount + c.amount)::BIGINT AS paired
        FROM {{views}} AS v JOIN {{clicks}} AS c
        ON v.key = c.key AND abs(epoch_us(v.time) - epoch_us(c.time)) <= {WITHIN_SECONDS * 1_000_000}
        GROUP BY v.key
    """,
    Query.MERGED: """
        SELECT key, count(*) AS records, sum(amount)::BIGINT AS amount
        FROM (SELECT key, amount FROM {placed} UNION ALL SELECT key, amount FROM {rekeyed}) GROUP BY key
    """,
    Query.HOT: _TOTALS,
    Query.BY_SHARE: _TOTALS,
    Query.CHANGING: f"SELECT team, count(*) AS members, sum(amount)::BIGINT AS amount FROM {_NEWEST} GROUP BY team",
    Query.CHANGING_JOINED: f"""
        SELECT team, count(*) AS members, sum(newest.amount * totals.amount)::BIGINT AS worth
        FROM {_NEWEST} AS newest JOIN (SELECT key, sum(amount)::BIGINT AS amount FROM {{orders}} GROUP BY key) AS totals
        USING (key) GROUP BY team
    """,
    Query.HOT_JOINED: "SELECT e.key, event, amount * rate AS worth FROM {events} AS e JOIN {profiles} USING (key)",
}


@contextmanager
def one_process(workload: Workload) -> Iterator[Run]:
    """DuckDB in one process on all cores."""
    with duckdb.connect(config={"threads": str(CORES)}) as connection:

        def run(number: int, at: Workload) -> Callable[[], Left]:
            folder = arrive(at, number) if at.query.arrives else at.landed
            read = {topic.name: f"read_parquet('{folder / topic.name}/*/*.parquet')" for topic in at.topics}
            out = emptied(at.results) / "all.parquet"
            _copy(connection, workload.query, read, out)
            return lambda: Left([str(out)])

        yield run


@contextmanager
def process_per_core(workload: Workload) -> Iterator[Run]:
    """DuckDB on one thread in one process for each core, one coset of keys at a time: the limit. Of several tasks of a
    coset each reads all of it."""
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:

        def run(number: int, at: Workload) -> Callable[[], Left]:
            out, tasks = emptied(at.results), COSETS * at.factor
            work = [(at, out / f"{task}.parquet", task, tasks) for task in range(tasks)]
            files = pool.starmap(_copy_task, work, chunksize=1)
            return lambda: Left(files)

        yield run


def _copy_task(workload: Workload, out: Path, task: int, tasks: int) -> str:
    mine = f"hash(key) % {tasks // COSETS} = {task // COSETS}"
    read = {}
    for topic in workload.topics:
        cosets = gcd(topic.partitions, COSETS)
        folders = (f"partition={number}" for number in range(topic.partitions) if (number - task) % cosets == 0)
        files = [str(workload.landed / topic.name / folder / "*.parquet") for folder in folders]
        read[topic.name] = f"(FROM read_parquet({files}) WHERE {mine})" if tasks > COSETS else f"read_parquet({files})"
    with duckdb.connect(config={"threads": "1"}) as connection:
        _copy(connection, workload.query, read, out)
    return str(out)


def _copy(connection: duckdb.DuckDBPyConnection, query: Query, read: Mapping[str, str], out: Path) -> None:
    asked = _QUERIES[query].format(**read)
    connection.execute(f"COPY ({asked}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
