"""Spark 3.5 with DataFusion Comet 0.12, for which there is no later Spark, on the files on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.on_spark import asked_of_spark
from bench.party import Run, jar
from bench.workload import Workload


@contextmanager
def comet(workload: Workload) -> Iterator[Run]:
    """Comet's native operators and its shuffle."""
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
