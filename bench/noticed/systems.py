"""The port of the systems: each is a session that joins topics on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.noticed.outcome import Outcome
from bench.noticed.topics import Rows, Topics

# Joins topics, in an empty folder of its own.
Run = Callable[[Topics, Path], Outcome]

# Title, module and function of each system. Modules are separate so that none is imported unless it runs.
SYSTEMS = {
    "spark": ("Spark, shuffling", "bench.noticed.on_spark", "shuffling"),
    "spark-buckets": ("Spark, partitions as buckets", "bench.noticed.on_spark", "by_bucket"),
    "spark-streaming": ("Structured Streaming", "bench.noticed.on_spark", "streaming"),
    "kafka-streams": ("Kafka Streams", "bench.noticed.on_kafka_streams", "streams"),
    "duckdb": ("DuckDB, whole topics", "bench.noticed.on_duckdb", "whole"),
    "duckdb-partitions": ("DuckDB, a process for each partition", "bench.noticed.on_duckdb", "by_partition"),
    "coset": ("Coset", "bench.noticed.on_coset", "coset"),
}
# The same for salted joins of topics that nothing is wrong with, whose run has an executor killed.
RETRIED = {
    "spark-rand": ("Spark, salted by rand()", "bench.noticed.on_spark_retried", "by_rand"),
    "spark-function": ("Spark, by a Python function", "bench.noticed.on_spark_retried", "by_function"),
    "spark-unchecked": (
        "Spark, by a Python function, without checksums",
        "bench.noticed.on_spark_retried",
        "by_function_unchecked",
    ),
    "coset-function": ("Coset, by a Python function", "bench.noticed.on_coset_retried", "by_function"),
}


def landed(join: Callable[[Path], Rows]) -> Run:
    """The run of a system that joins what lies in a folder, and says nothing of it."""

    def run(topics: Topics, folder: Path) -> Outcome:
        topics.land(folder / "topics")
        return Outcome.of(join(folder), topics.joined)

    return run
