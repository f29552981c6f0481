"""`python -m bench.moving`: KAFKA-7294's example, 900,000 placed records beside 100,000 that were given other keys.

Coset runs a whole batch in one Spark application, both waves, its audit too, from an S3 server on this machine: once
as it plans, and once made to move all. Plain PySpark reads the same files from the disk: once as one would write it,
so that it shuffles what each task has combined, and once with the records repartitioned.
Each runs three times; the last counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.table import Table

from bench.measure import Cost, measured
from bench.party import MASTER, emptied, shuffled
from coset.batches import audit
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import configuration, environment
from coset.batches.steps import plan
from coset.cli.output import console
from demo.s3_server import start_server
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from spark_jobs.engine.hashing import placement_hashes

_PARTITIONS, _PLACED, _REKEYED, _USERS = 8, 900_000, 100_000, 50_000
_RUNS = 3
# The cost, the records that moved (None if one row moved for each task and user), and their bytes.
Figures = tuple[Cost, int | None, int]


def main() -> int:
    to = console(stderr=False)
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        _land(folder / "topics")
        server = start_server(folder / "s3", ("moving",))
        try:
            os.environ.update({**server.environment, **environment(sys.executable)})
            for file in (folder / "topics").rglob("*.parquet"):
                store_at("s3://moving/topics").put(str(file.relative_to(folder / "topics")), file.read_bytes())
            figures = {
                "Coset": _coset("counts", moving_all=False),
                "Coset, made to move all": _coset("all", moving_all=True),
                "plain PySpark, adaptive": _pyspark(folder, moving_all=False),
                "plain PySpark, repartitioned by user": _pyspark(folder, moving_all=True),
            }
        finally:
            server.stop()
    table = Table(title="KAFKA-7294: 900,000 placed and 100,000 re-keyed records, counted by user")
    for name in ("", "records moved", "bytes moved", "CPU s", "wall s"):
        table.add_column(name, justify="right" if name else "left")
    for name, (cost, records, moved) in figures.items():
        table.add_row(
            name,
            "combined first" if records is None else f"{records:,}",
            f"{moved:,}",
            f"{cost.cpu:.2f}",
            f"{cost.wall:.2f}",
        )
    to.print(table)
    return 0


def _land(topics: Path) -> None:
    random = np.random.default_rng(7294)
    users = np.array([f"user-{number:06}" for number in range(_USERS)])
    for name, records, key in (("a", _PLACED, "user"), ("b", _REKEYED, "session")):
        columns = {
            "user": pa.array(users[random.integers(0, _USERS, records)].tolist()),
            "session": pa.array([f"session-{number:07}" for number in random.integers(0, 10**7, records)]),
            "amount": pa.array(random.integers(0, 1000, records)),
        }
        landed = pa.table(columns if name == "b" else {column: columns[column] for column in ("user", "amount")})
        places = placement_hashes(landed[key].combine_chunks(), "string") % _PARTITIONS
        for partition in range(_PARTITIONS):
            mine = landed.filter(pa.array(places == partition))
            mine = mine.append_column("_offset", pa.array(range(len(mine)), pa.int64()))
            file = topics / name / f"partition={partition}" / f"{name}+{partition}+0000000000.parquet"
            file.parent.mkdir(parents=True)
            pq.write_table(mine, file, compression="zstd")


def _pipeline(name: str, *, moving_all: bool) -> Pipeline:
    pipeline = Pipeline(name, source="s3://moving/topics")
    placed = pipeline.stream("a", key="user", partitions=_PARTITIONS)
    rekeyed = pipeline.stream("b", key="session", partitions=_PARTITIONS).rekey("user", name="by_user")
    both = placed.select("amount", name="placed").merge(rekeyed.select("amount", name="rekeyed"), name="both")
    if moving_all:
        both = both.repartition(_PARTITIONS, name="moved")
    both.aggregate("count(*) AS n, sum(amount)::BIGINT AS amount", name="counted").write(name)
    return pipeline


def _coset(name: str, *, moving_all: bool) -> Figures:
    ref, _ = plan(_pipeline(name, moving_all=moving_all), "s3://moving/store")
    assert ref is not None
    with Spark(MASTER) as runner:
        for number in range(_RUNS):
            with measured() as cost:
                _run(ref, runner)
                ledger, planned = ref.load()
                tables = audit.audit(ledger, planned, number)
            assert (tables.coverage["digest_found"] == tables.coverage["digest_planned"]).all()
            ledger.close_attempt(planned.batch, number, b"{}")
    return cost, int(tables.moved["records"].sum()), int(tables.moved["bytes"].sum())


def _run(ref: BatchRef, runner: Runner) -> None:
    _, planned = ref.load()
    for wave in planned.waves:
        for number in wave:
            runner.group(ref, number)


def _pyspark(folder: Path, *, moving_all: bool) -> Figures:
    with _session() as spark:

        def records(stream: str) -> DataFrame:
            return spark.read.parquet(str(folder / "topics" / stream)).select("user", "amount")

        def count() -> None:
            both = records("a").unionByName(records("b"))
            if moving_all:
                both = both.repartition(_PARTITIONS, "user")
            rows = both.groupBy("user").agg(f.count("*").alias("n"), f.sum("amount").alias("amount"))
            rows.write.mode("overwrite").parquet(str(emptied(folder / "result")))

        for _ in range(_RUNS):
            before = shuffled(spark.sparkContext)
            with measured() as cost:
                count()
            moved = shuffled(spark.sparkContext) - before
    return cost, _PLACED + _REKEYED if moving_all else None, moved


@contextmanager
def _session() -> Iterator[SparkSession]:
    codec = {"spark.sql.parquet.compression.codec": "zstd"}
    settings: dict[str, Any] = {**configuration(MASTER), "spark.driver.memory": "4g", **codec}
    # The JVM needs its optimiser for real work.
    settings["spark.driver.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"].split()[0]
    with SparkSession.builder.master(MASTER).config(map=settings).getOrCreate() as spark:
        yield spark


if __name__ == "__main__":
    sys.exit(main())
