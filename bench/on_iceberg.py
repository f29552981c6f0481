"""Spark 4.1 with Iceberg's storage-partitioned join, on the records rewritten into buckets of keys beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.on_spark import SETTINGS, asked_of_spark
from bench.party import MASTER, Run, jar
from bench.workload import Workload

_READY = ".ready"


@contextmanager
def buckets(workload: Workload) -> Iterator[Run]:
    """Joins of tables whose buckets fit each other, without an exchange."""
    with asked_of_spark(workload, _settings(workload), read=_table) as run:
        yield run


def _table(spark: SparkSession, workload: Workload, topic: str) -> DataFrame:
    return spark.table(_name(workload, topic))


def _name(workload: Workload, topic: str) -> str:
    return f"lake.`{workload.query.data}`.{topic}"


def rewrite(workload: Workload) -> None:
    """Write the tables unless they are there."""
    ready = workload.folder / "iceberg" / workload.query.data / _READY
    if ready.exists():
        return
    with SparkSession.builder.master(MASTER).config(map={**SETTINGS, **_settings(workload)}).getOrCreate() as spark:
        for topic in workload.topics:
            rows = spark.read.parquet(str(workload.landed / topic.name)).drop("_offset", "partition")
            written = rows.writeTo(_name(workload, topic.name)).using("iceberg")
            written.partitionedBy(f.partitioning.bucket(topic.partitions, topic.key)).createOrReplace()
    ready.touch()


def _settings(workload: Workload) -> Mapping[str, str]:
    iceberg_jar = jar("iceberg")
    return {
        "spark.driver.extraClassPath": iceberg_jar,
        "spark.jars": iceberg_jar,
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(workload.folder / "iceberg"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled": "true",
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    }
