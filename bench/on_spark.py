"""PySpark on the files on the local disk, as one would write it. Other versions of Spark ask the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.party import COSETS, MASTER, Left, Run, emptied, jar, shuffled
from bench.workload import WITHIN_SECONDS, Query, Workload

# What answers a query from its topics, the first and the last, and what reads one.
Answer = Callable[[Query, DataFrame, DataFrame], DataFrame]
Read = Callable[[SparkSession, Workload, str], DataFrame]
_LOGGING = Path(__file__).parents[1] / "spark_jobs" / "log4j2.properties"
SETTINGS: Mapping[str, str] = {
    "spark.authenticate": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "8g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def plain(workload: Workload) -> Iterator[Run]:
    """Adaptive execution, and nothing else that is not Spark's default."""
    with asked_of_spark(workload, {}) as run:
        yield run


@contextmanager
def comet(workload: Workload) -> Iterator[Run]:
    """DataFusion Comet's native operators and its shuffle, for which there is no Spark later than 3.5."""
    comet_jar = jar("comet")
    settings = {
        "spark.comet.enabled": "true",
        "spark.comet.exec.enabled": "true",
        "spark.comet.exec.shuffle.enabled": "true",
        "spark.driver.extraClassPath": comet_jar,
        "spark.jars": comet_jar,
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "6g",
        "spark.plugins": "org.apache.spark.CometPlugin",
        "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    }
    with asked_of_spark(workload, settings) as run:
        yield run


def landed(spark: SparkSession, workload: Workload, topic: str) -> DataFrame:
    return spark.read.parquet(str(workload.landed / topic))


def answer(query: Query, left: DataFrame, right: DataFrame) -> DataFrame:
    match query:
        case Query.COUNTED | Query.ELASTIC | Query.BY_RECORDS:
            return counted(left, "views", "viewed").join(counted(right, "clicks", "clicked"), "key", "full")
        case Query.IN_TIME:
            v, c = left.alias("v"), right.alias("c")
            near = f.abs(f.unix_micros("v.time") - f.unix_micros("c.time")) <= WITHIN_SECONDS * 1_000_000
            met = v.join(c, (f.col("v.key") == f.col("c.key")) & near)
            return met.groupBy("v.key").agg(
                f.count("*").alias("pairs"), f.sum(f.col("v.amount") + f.col("c.amount")).alias("paired")
            )
        case Query.MERGED:
            return counted(left.select("key", "amount").unionByName(right.select("key", "amount")))
        case Query.HOT | Query.BY_SHARE:
            return counted(left)
        case Query.HOT_JOINED:
            return left.join(right, "key").select("key", "event", (f.col("amount") * f.col("rate")).alias("worth"))
        case _:
            raise ValueError(query)


def counted(records: DataFrame, count: str = "records", total: str = "amount") -> DataFrame:
    return records.groupBy("key").agg(f.count("*").alias(count), f.sum("amount").alias(total))


@contextmanager
def asked_of_spark(
    workload: Workload, settings: Mapping[str, str], *, answer: Answer = answer, read: Read = landed
) -> Iterator[Run]:
    """A Spark session with these settings. It reads the landed files, or what `read` gives of a topic."""
    with SparkSession.builder.master(MASTER).config(map={**SETTINGS, **settings}).getOrCreate() as spark:

        def run(number: int, at: Workload) -> Callable[[], Left]:
            before, out = shuffled(spark.sparkContext), emptied(at.results)
            if at.query is Query.ELASTIC:
                spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
                spark.conf.set("spark.sql.shuffle.partitions", str(COSETS * at.factor))
            sides = [read(spark, at, topic.name) for topic in at.topics]
            answer(at.query, sides[0], sides[-1]).write.mode("overwrite").parquet(str(out))
            return lambda: Left([*map(str, out.glob("*.parquet"))], shuffled(spark.sparkContext) - before)

        yield run
