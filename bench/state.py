"""Totals that go on, without Coset: Structured Streaming keeps them, plain PySpark writes all of them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.on_spark import SETTINGS, counted
from bench.party import MASTER, Left, Run, arrive, emptied, shuffled
from bench.workload import Query, Workload
from coset.batches.runners.spark_settings import configuration


@contextmanager
def streaming(workload: Workload) -> Iterator[Run]:
    """One query over all runs, its state in RocksDB. For another number of tasks it is stopped, and Spark 4.2's offline
    repartitioning (not public yet) writes its state anew."""
    with session() as spark:
        spark.conf.set("spark.sql.shuffle.partitions", str(workload.totalling(0)))
        rows, checkpoint = emptied(workload.results) / "rows", workload.results / "checkpoint"

        def write(changed: DataFrame, batch: int) -> None:
            changed.write.mode("append").parquet(str(rows))

        def begin(arrived: str) -> Any:
            totals = counted(spark.readStream.schema("key string, amount long").parquet(f"{arrived}/orders"))
            writing = totals.writeStream.outputMode("update").foreachBatch(write)
            return writing.option("checkpointLocation", str(checkpoint)).start()

        def run(number: int, _: Workload) -> Callable[[], Left]:
            before = shuffled(spark.sparkContext)
            tasks = workload.totalling(number)
            changes = number > 0 and tasks != workload.totalling(number - 1)
            if changes:
                spark.streams.active[0].stop()
                spark._streamingCheckpointManager.repartition(str(checkpoint), tasks)
            arrived = str(arrive(workload, number))
            query = spark.streams.active[0] if spark.streams.active else begin(arrived)
            query.processAllAvailable()
            return lambda: Left([*map(str, rows.glob("*.parquet"))], shuffled(spark.sparkContext) - before)

        yield run


@contextmanager
def anew(workload: Workload) -> Iterator[Run]:
    """Of small batches all records so far are counted again; of many keys, what is new is added to all totals."""
    with SparkSession.builder.master(MASTER).config(map=dict(SETTINGS)).getOrCreate() as spark:
        results = emptied(workload.results)

        def run(number: int, _: Workload) -> Callable[[], Left]:
            before = shuffled(spark.sparkContext)
            arrived, out = arrive(workload, number), results / str(number)
            spark.conf.set("spark.sql.shuffle.partitions", str(workload.totalling(number)))
            if workload.query.changes:
                sides = [spark.read.parquet(str(arrived / topic.name)) for topic in workload.topics]
                totals = teams(workload.query, sides[0], sides[-1])
            elif workload.query is Query.BATCHES or number == 0:
                totals = counted(spark.read.parquet(str(arrived)))
            else:
                new = counted(spark.read.parquet(*map(str, workload.round(number))))
                kept = new.unionByName(spark.read.parquet(str(results / str(number - 1))))
                totals = kept.groupBy("key").agg(*(f.sum(name).alias(name) for name in ("records", "amount")))
            totals.write.parquet(str(out))
            return lambda: Left([*map(str, out.glob("*.parquet"))], shuffled(spark.sparkContext) - before)

        yield run


def teams(query: Query, members: DataFrame, orders: DataFrame) -> DataFrame:
    """What is asked of the newest record of each member, by its team."""
    newest = members.groupBy("key").agg(f.max_by(f.struct("team", "amount"), "seen").alias("newest"))
    newest = newest.select("key", "newest.team", "newest.amount")
    if query is Query.CHANGING:
        return newest.groupBy("team").agg(f.count("*").alias("members"), f.sum("amount").alias("amount"))
    totals = counted(orders, total="ordered")
    worth = newest.join(totals, "key").withColumn("worth", f.col("amount") * f.col("ordered"))
    return worth.groupBy("team").agg(f.count("*").alias("members"), f.sum("worth").alias("worth"))


@contextmanager
def session() -> Iterator[SparkSession]:
    """Spark with state in RocksDB."""
    settings: dict[str, Any] = {
        **configuration(MASTER),
        "spark.driver.memory": "6g",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    # The JVM needs its optimiser for real work.
    settings["spark.driver.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"].split()[0]
    with SparkSession.builder.master(MASTER).config(map=settings).getOrCreate() as spark:
        yield spark
