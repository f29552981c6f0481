"""Plain PySpark with adaptive execution, on the files on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.party import MASTER, Run, emptied, shuffled
from bench.workload import Workload
from coset.batches.runners.spark_settings import configuration


@contextmanager
def plain(workload: Workload) -> Iterator[Run]:
    """Plain PySpark with adaptive execution, as one would write it."""
    settings: dict[str, Any] = {
        **configuration(MASTER),
        "spark.driver.memory": "8g",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    # The JVM needs its optimiser for real work.
    settings["spark.driver.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"].split()[0]
    with SparkSession.builder.master(MASTER).config(map=settings).getOrCreate() as spark:

        def side(stream: str, count: str, total: str) -> DataFrame:
            records = spark.read.parquet(str(workload.landed / stream))
            return records.groupBy("key").agg(f.count("*").alias(count), f.sum("amount").alias(total))

        def run(number: int) -> tuple[list[str], int]:
            before = shuffled(spark.sparkContext)
            joined = side("views", "views", "viewed").join(side("clicks", "clicks", "clicked"), "key", "full")
            out = emptied(workload.folder / "results" / "pyspark")
            joined.write.mode("overwrite").parquet(str(out))
            return [str(file) for file in out.glob("*.parquet")], shuffled(spark.sparkContext) - before

        yield run
