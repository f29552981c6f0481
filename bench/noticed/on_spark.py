"""Spark: a join that shuffles, one that trusts the topics' partitions as buckets, and one of two streams of files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession

from bench.noticed.outcome import Run, landed
from bench.noticed.topics import KEY, PARTITIONS, TOPICS, Rows
from bench.party import MASTER
from coset.batches.runners.spark import end_java
from coset.batches.runners.spark_settings import configuration

COLUMNS = (KEY, *TOPICS.values())
# A small table would be sent to all tasks: nothing would be shuffled, and nothing could be seen.
_SETTINGS = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"}


@contextmanager
def session(master: str = MASTER, **given: str) -> Iterator[SparkSession]:
    """Spark, as plain as the joins need it: the one that runs already, if it has this master."""
    running = SparkSession.getActiveSession()
    if running is not None and running.sparkContext.master == master:
        yield running
        return
    settings: dict[str, Any] = {**configuration(master), **_SETTINGS, **given}
    try:
        with SparkSession.builder.master(master).config(map=settings).getOrCreate() as spark:
            yield spark
    finally:
        if SparkContext._gateway is not None:
            end_java(SparkContext._gateway)


@contextmanager
def shuffling() -> Iterator[Run]:
    """The topics' files, joined as one would write it."""
    with session() as spark:

        def join(folder: Path) -> Rows:
            orders, payments = (spark.read.parquet(str(folder / "topics" / topic)) for topic in TOPICS)
            return rows_of(orders.join(payments, KEY).select(*COLUMNS).collect())

        yield landed(join)


@contextmanager
def by_bucket() -> Iterator[Run]:
    """Each partition declared as a bucket of a table, so that equal keys need not be shuffled to meet.

    A join that shuffles after all raises AssertionError.
    """
    with session() as spark:

        def join(folder: Path) -> Rows:
            orders, payments = (_bucketed(spark, folder, topic) for topic in TOPICS)
            joined = orders.join(payments, KEY).select(*COLUMNS)
            assert "Exchange" not in str(joined._jdf.queryExecution().executedPlan().toString())
            return rows_of(joined.collect())

        yield landed(join)


@contextmanager
def streaming() -> Iterator[Run]:
    """Structured Streaming: an inner join of two streams of files, until all files are read."""
    with session() as spark:

        def read(folder: Path, topic: str) -> DataFrame:
            files = str(folder / "topics" / topic)
            return spark.readStream.schema(spark.read.parquet(files).schema).parquet(files)

        def join(folder: Path) -> Rows:
            orders, payments = (read(folder, topic) for topic in TOPICS)
            joined = orders.join(payments, KEY).select(*COLUMNS)
            query = joined.writeStream.format("memory").queryName("joined").trigger(availableNow=True)
            query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
            return rows_of(spark.table("joined").collect())

        yield landed(join)


def _bucketed(spark: SparkSession, folder: Path, topic: str) -> DataFrame:
    """A topic's files as a table of buckets."""
    table = folder / "buckets" / topic
    table.mkdir(parents=True)
    for file in (folder / "topics" / topic).rglob("*.parquet"):
        # Spark takes the number of a bucket from the name of its file.
        bucket = int(file.parent.name.partition("=")[2])
        shutil.copy(file, table / f"part-{file.stem}_{bucket:05}.c000.parquet")
    spark.sql(f"DROP TABLE IF EXISTS {topic}")
    spark.sql(
        f"CREATE TABLE {topic} ({KEY} STRING, {TOPICS[topic]} BIGINT) USING parquet "
        f"CLUSTERED BY ({KEY}) INTO {PARTITIONS} BUCKETS LOCATION '{table}'"
    )
    return spark.table(topic)


def rows_of(found: Iterable[Row]) -> Rows:
    """Rows as Spark gives them, counted."""
    return Counter(tuple(row) for row in found)
