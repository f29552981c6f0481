"""Orders as tasks of Spark's, one each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from coset.sources import s3
from coset.sources.kafka import properties as kafka
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, about
from partitioning.kinds import Kind
from spark_jobs.group import MEMORY, RunTasks, Work, answer, pieces

if TYPE_CHECKING:  # few groups need it
    from pyspark.sql import SparkSession


def with_store(conf: SparkConf) -> SparkConf:
    """The settings, by which executors on other machines are given the variables of this process for store and brokers.

    Its driver sets them, and not who starts it: a program's arguments can be read by everybody on its machine.
    """
    if not (conf.get("spark.master") or "").startswith("local"):
        for name, value in (s3.environment() | kafka.environment()).items():
            conf.setIfMissing(f"spark.executorEnv.{name}", value)
    return conf


def tasks_of(spark: SparkContext, description: str, log: str, memory: str = MEMORY) -> RunTasks:
    """Runs the work of a task group as one job, to be called in a thread of its own if several are to run at once.

    What it gives raises CosetError if Spark itself fails; `log` says where to read on.
    """

    def run(work: Work) -> Sequence[bytes]:
        spark.setJobDescription(description)
        sent = pieces(work, spark.defaultParallelism)
        # An RDD of the orders: each task is sent its own. Spark's SQL engine would only have to be started.
        try:
            return spark.parallelize(sent, len(sent)).map(partial(answer, memory=memory)).collect()
        except (PySparkException, Py4JError) as error:
            raise job_failed(error, description, log) from None

    return run


@contextmanager
def dataframes(spark: SparkContext, description: str, log: str) -> Iterator[SparkSession]:
    """A session of its own for a group's steps on DataFrames. Raises CosetError if Spark itself fails meanwhile."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark.setJobDescription(description)
    try:
        yield SparkSession(spark).newSession()
    except (PySparkException, Py4JError) as error:
        raise job_failed(error, description, log) from None


def job_failed(error: Exception, description: str, log: str) -> CosetError:
    """What Spark said last of why a job failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or "Exception: " in line] or lines or [repr(error)]
    return CosetError(
        Finding(
            Kind.SPARK,
            f"the Spark job failed: {causes[-1]}",
            description,
            (f"see {log}, then ", Repeat()),
            about(job=description),
        )
    )
