"""`python -m bench.state`: running totals of ten million keys, of which a batch has ten thousand; then other tasks.

Coset runs whole batches in one Spark application, from and to an S3 server on this machine: the first batch has all
keys, the others ten thousand each. Some find cached state, and one has 12 tasks in place of 8.
Spark's structured streaming does the same from and to the disk, its state in RocksDB; for another number of tasks it is
stopped, and Spark 4.2's offline repartitioning (not public yet) writes all of its state anew.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.table import Table

from bench.measure import Cost, measured
from bench.party import MASTER
from coset.batches.interpreter import run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import configuration, environment
from coset.batches.steps import plan
from coset.cli.output import console
from coset.sources.copies import FOLDER
from demo.s3_server import start_server
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.model.artefact import Role
from partitioning.model.graph import Mode
from partitioning.sections import size
from spark_jobs.engine.hashing import placement_hashes

_PARTITIONS, _OTHER = 8, 12
_TOUCHED = 10_000
_OF_STATE = re.compile(r"([^;]*) of state were read(, [^;]* from the cache)?")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    keys = parser.parse_args().keys
    table = Table(title=f"Running totals of {keys:,} keys")
    for name in ("", "CPU s", "wall s", "state read", "state written", "table written"):
        table.add_column(name, justify="left" if not name else "right")
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        for row in (*_coset(folder, keys), *_pyspark(folder, keys)):
            table.add_row(*row)
    console(stderr=False).print(table)
    return 0


Row = tuple[str, str, str, str, str, str]


def _row(name: str, cost: Cost, read: str, written: str, rows: str = "none") -> Row:
    return name, f"{cost.cpu:.1f}", f"{cost.wall:.1f}", read, written, rows


def _records(batch: int, keys: int) -> pa.Table:
    random = np.random.default_rng(batch)
    numbers = np.arange(keys) if batch == 0 else random.integers(0, keys, _TOUCHED)
    users = pa.array(np.char.add("user-", numbers.astype("U8")).tolist())
    return pa.table({"user": users, "amount": pa.array(random.integers(0, 1000, len(numbers)))})


def _coset(folder: Path, keys: int) -> Iterator[Row]:
    server = start_server(folder / "s3", ("state",))
    os.environ.update({**server.environment, **environment(sys.executable)})
    ends = [0] * _PARTITIONS
    copies = str(folder / "copies")
    try:
        one, other = Settings(groups=1), Settings.parse(scheme=f"tasks({_OTHER})", groups=1)
        for batch, (name, kept, settings, mode) in enumerate(
            [
                (f"Coset, all keys, {_PARTITIONS} tasks", None, one, Mode.APPEND),
                (f"{_TOUCHED:,} keys", None, one, Mode.APPEND),
                (f"{_TOUCHED:,} keys, copies are made", copies, one, Mode.APPEND),
                (f"{_TOUCHED:,} keys, with copies", copies, one, Mode.APPEND),
                (f"{_TOUCHED:,} keys, {_OTHER} tasks", None, other, Mode.APPEND),
                (f"{_TOUCHED:,} keys, to a new upserted table", None, one, Mode.UPSERT),
                (f"{_TOUCHED:,} keys, to the same", None, one, Mode.UPSERT),
            ]
        ):
            _land(_records(batch, keys), ends)
            with _variable(FOLDER, kept), measured() as cost:
                read, *written = _batch(settings, folder, mode)
            yield _row(name, cost, read, *written)
    finally:
        server.stop()


def _land(records: pa.Table, ends: list[int]) -> None:
    places = placement_hashes(records["user"].combine_chunks(), "string") % _PARTITIONS
    for partition in range(_PARTITIONS):
        mine = records.filter(pa.array(places == partition))
        first = ends[partition]
        mine = mine.append_column("_offset", pa.array(range(first, first + len(mine)), pa.int64()))
        sink = pa.BufferOutputStream()
        pq.write_table(mine, sink, compression="zstd")
        name = f"a/partition={partition}/a+{partition}+{first:010}.parquet"
        store_at("s3://state/topics").put(name, sink.getvalue().to_pybytes())
        ends[partition] += len(mine)


def _batch(settings: Settings, folder: Path, mode: Mode) -> tuple[str, str, str]:
    """Run and publish a batch. Returns the state read and written, and the rows written to the table of that mode."""
    pipeline = Pipeline("totals", source="s3://state/topics")
    counted = pipeline.stream("a", key="user", partitions=_PARTITIONS).aggregate("sum(amount)::BIGINT AS amount")
    counted.combine("sum(amount)::BIGINT AS amount", running=True, name="totals").write(mode, mode=mode)
    ref, _ = plan(pipeline, "s3://state/store", settings)
    assert ref is not None
    said: list[str] = []

    @contextmanager
    def show(_: str) -> Iterator[list[str]]:
        yield said

    with Spark(MASTER, memory="4GB") as runner:
        run_batch(ref, runner, folder / "docs", show)
    found = next(filter(None, map(_OF_STATE.search, said)), None)
    read = f"{found[1].strip()}{found[2] or ''}" if found else "none"
    return read, _left(ref, Role.STATE), _left(ref, Role.TABLE)


def _left(ref: BatchRef, role: Role) -> str:
    ledger, planned = ref.load()
    receipts = [ledger.receipt(planned.batch, 0, group.group) for group in planned.groups]
    files = [file for one in receipts if one for task in one.tasks for file in task.left(role)]
    return f"{sum(file.records for file in files):,} rows, {size(sum(file.size for file in files))}"


def _pyspark(folder: Path, keys: int) -> Iterator[Row]:
    landed, checkpoint = folder / "landed", folder / "checkpoint"
    landed.mkdir()
    with session() as spark:

        def query(batch: int) -> None:
            pq.write_table(_records(batch, keys), landed / f"{batch}.parquet", compression="zstd")
            records = spark.readStream.schema("user string, amount long").parquet(str(landed))
            totals = records.groupBy("user").agg(f.sum("amount").alias("amount")).writeStream.outputMode("update")
            running = totals.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            running.start().awaitTermination()

        for batch, name in enumerate(
            (f"Spark, all keys, {_PARTITIONS} tasks", f"{_TOUCHED:,} keys", f"{_TOUCHED:,} keys, once more")
        ):
            before = _there(checkpoint)
            with measured() as cost:
                query(batch)
            yield _row(name, cost, "not known", size(_new(checkpoint, before)))
        before = _there(checkpoint)
        with measured() as cost:
            spark._streamingCheckpointManager.repartition(str(checkpoint), _OTHER)
        yield _row(f"the query is stopped: {_OTHER} tasks", cost, "all", size(_new(checkpoint, before)))
        before = _there(checkpoint)
        with measured() as cost:
            query(3)
        yield _row(f"{_TOUCHED:,} keys, {_OTHER} tasks", cost, "not known", size(_new(checkpoint, before)))


def _there(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _new(folder: Path, before: set[Path]) -> int:
    """The bytes of new files."""
    return sum(path.stat().st_size for path in _there(folder) - before)


@contextmanager
def session() -> Iterator[SparkSession]:
    settings: dict[str, Any] = {
        **configuration(MASTER),
        "spark.driver.memory": "6g",
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    # The JVM needs its optimiser for real work.
    settings["spark.driver.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"].split()[0]
    with SparkSession.builder.master(MASTER).config(map=settings).getOrCreate() as spark:
        yield spark


@contextmanager
def _variable(name: str, value: str | None) -> Iterator[None]:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


if __name__ == "__main__":
    sys.exit(main())
