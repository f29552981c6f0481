"""`python -m bench.cluster`: a batch of 100 million records over two workers of a standalone Spark cluster.

The workers are hosts of `tests/hosts.py`: each has namespaces and a Python of its own, and one core. DuckDB makes the
records, and they are landed in an S3 server on this machine. Coset plans, runs, proves and publishes their aggregate by
key. DuckDB aggregates the same files from the local disk; both results have to have the same digest. With `--page` the
figures go into that page.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import duckdb
import psutil
import pyarrow as pa
from deltalake import DeltaTable

from bench.figures import put
from bench.making import upload
from bench.measure import Cost, cpu_of, cpu_of_all, measured
from coset.batches.interpreter import run_batch, silently
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import PYTHON, environment
from coset.batches.steps import plan
from coset.sources.s3 import storage_options
from demo.s3_server import S3Server, served
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.sections import size
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.tables.table_schema import folder
from tests.hosts import Standalone, standalone

COMMAND = "python -m bench.cluster"
SOURCE, STORE = "s3://landing/topics", "s3://coset"
_PARTITIONS, _FILES, _GROUPS, _KEYS = 16, 8, 4, 1_000_000
_HOSTS = ("sea", "land")
_MEMORY = "1GB"
_AGGREGATE = "count(*) AS views, sum(amount)::BIGINT AS amount, max(seen) AS latest"
_RECORDS = """
    SELECT key, (hash(i) % 10_000)::BIGINT AS amount, make_timestamp(1_700_000_000_000_000 + i * 1000) AS seen,
           i AS _offset
    FROM range({start}, {end}) AS offsets (i) JOIN mine ON number = hash(i, 1) % {keys} ORDER BY i
"""
_DIGEST = "SELECT count(*), sum(views)::BIGINT, bit_xor(hash(key, views, amount, epoch_us(latest))) FROM result"


@dataclass
class Memory:
    """The most that was seen of a host: of all its processes at once, and of the largest process of a task."""

    host: int = 0
    task: int = 0

    def look(self, worker: int) -> None:
        """See what the processes of a worker have now."""
        together = 0
        for process in psutil.Process(worker).children(recursive=True):
            # What ends meanwhile has none.
            try:
                has = process.memory_info().rss
                if process.name().startswith("python"):
                    self.task = max(self.task, has)
                together += has
            except psutil.NoSuchProcess:
                continue
        self.host = max(self.host, together)


@dataclass
class Seen:
    """What a run took: processor seconds by who used them, and memory of each host."""

    cost: Cost = field(default_factory=Cost)
    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)


def main() -> int:
    """Make the records, run both, show the figures. It fails if the results differ."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    with TemporaryDirectory() as temp:
        path = Path(temp)
        files = list(_made(path / "topics", asked.records))
        landed = sum(file.stat().st_size for file in files)
        with served(path / "s3", ("landing", "coset")) as server:
            os.environ.update(environment(sys.executable))
            upload(SOURCE, path / "topics", files)
            with standalone(path) as cluster:
                seen = _coset(cluster, server, path / "docs")
            ours = _digest(DeltaTable(folder(store_at(STORE), "activity"), storage_options=storage_options()))
        read = f"read_parquet({[*map(str, files)]})"
        with duckdb.connect() as database, measured() as alone:
            result = database.sql(f"SELECT key, {_AGGREGATE} FROM {read} GROUP BY key").to_arrow_table()
        same = ours == _digest(result)
    lines = list(_lines(asked.records, landed, seen, alone))
    lines += ["", f"Both results have {ours[0]:,} rows, " + ("and the same digest." if same else "and they DIFFER.")]
    print(*lines, sep="\n")
    if asked.page:
        put(asked.page, COMMAND, lines)
    return 0 if same else 1


def _made(topics: Path, records: int) -> Iterator[Path]:
    """The files of the stream, each with as many records of keys of its partition."""
    keys = pa.array([f"user-{key:016x}" for key in range(_KEYS)])
    partitions = placement_hashes(keys, "string") % _PARTITIONS
    each = records // _PARTITIONS // _FILES
    with duckdb.connect() as database:
        for partition in range(_PARTITIONS):
            mine = keys.filter(pa.array(partitions == partition))
            database.register("mine", pa.table({"key": mine, "number": pa.array(range(len(mine)), pa.uint64())}))
            place = topics / "views" / f"partition={partition}"
            place.mkdir(parents=True)
            for start in range(0, each * _FILES, each):
                file = place / f"views+{partition}+{start:010}.parquet"
                rows = _RECORDS.format(start=start, end=start + each, keys=len(mine))
                database.execute(f"COPY ({rows}) TO '{file}' (COMPRESSION zstd, ROW_GROUP_SIZE 1_000_000)")
                yield file


def _coset(cluster: Standalone, server: S3Server, docs: Path) -> Seen:
    """Plan, run, prove and publish the batch."""
    pipeline = Pipeline("activity", source=SOURCE)
    pipeline.stream("views", key="key", partitions=_PARTITIONS).aggregate(_AGGREGATE).write("activity")
    for host in _HOSTS:
        cluster.host(host)
    workers = {host: cluster.workers[host].pid for host in _HOSTS}
    seen = Seen(memory={host: Memory() for host in _HOSTS})
    with (
        Spark(cluster.master, _MEMORY, {**cluster.settings, PYTHON: str(cluster.python)}) as runner,
        _looked_at(seen, workers),
        measured() as seen.cost,
    ):
        before = {**{host: cpu_of_all(pid) for host, pid in workers.items()}, "S3": cpu_of(server.process.pid)}
        ref, said = plan(pipeline, STORE, Settings(groups=_GROUPS))
        assert ref is not None, said
        run_batch(ref, runner, docs, silently)
        after = {**{host: cpu_of_all(pid) for host, pid in workers.items()}, "S3": cpu_of(server.process.pid)}
    seen.cpu = {name: spent - before[name] for name, spent in after.items()}
    return seen


@contextmanager
def _looked_at(seen: Seen, workers: dict[str, int]) -> Iterator[None]:
    """Look at the memory of the workers meanwhile."""
    over = Event()

    def look() -> None:
        while not over.wait(0.5):
            for host, worker in workers.items():
                seen.memory[host].look(worker)

    looking = Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _digest(result: object) -> tuple[int, ...]:
    with duckdb.connect() as database:
        rows = result.to_pyarrow_dataset() if isinstance(result, DeltaTable) else result
        database.register("result", rows)
        (row,) = database.execute(_DIGEST).fetchall()
    return tuple(map(int, row))


def _lines(records: int, landed: int, seen: Seen, alone: Cost) -> Iterator[str]:
    """What the page has."""
    cost, load = seen.cost, f"{os.getloadavg()[2]:.0f}"
    yield (
        f"{records:,} records, {size(landed)} in {_PARTITIONS * _FILES} landed files, {_KEYS:,} keys; two workers with "
        f"a core each, {_PARTITIONS} tasks in {_GROUPS} groups, `--memory {_MEMORY}`; {os.cpu_count()} cores with a "
        f"load of {load} while it ran:"
    )
    yield from ("", "| | CPU s | peak memory | of the largest task |", "| --- | --: | --: | --: |")
    for host, has in seen.memory.items():
        yield f"| worker `{host}` | {seen.cpu[host]:.1f} | {size(has.host)} | {size(has.task)} |"
    yield f"| S3 server | {seen.cpu['S3']:.1f} | | |"
    yield f"| driver and master | {cost.cpu - sum(seen.cpu.values()):.1f} | | |"
    yield f"| all, from plan to published | {cost.cpu:.1f} | | |"
    yield f"| DuckDB alone, in one process, from the local disk, without a proof | {alone.cpu:.1f} | | |"
    yield ""
    yield (
        f"That is {records / cost.cpu:,.0f} records for each CPU second. It took {cost.wall:.0f} s, which is "
        f"{records / cost.wall:,.0f} records a second; DuckDB took {alone.wall:.0f} s."
    )


if __name__ == "__main__":
    raise SystemExit(main())
