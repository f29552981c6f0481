"""Spark: the join under a random salt, while an executor is killed that holds what later tasks have yet to read.

A salt spreads a key over several tasks (chronon#1111). What the executor held is made again, and the salt with it.
"""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from bench.noticed.on_spark import COLUMNS, rows_of, session
from bench.noticed.outcome import Outcome, Run, Verdict
from bench.noticed.topics import KEY, TOPICS, Topics
from coset.batches.runners.spark_settings import configuration, environment
from demo.s3_server import set_for_a_while

EXECUTORS, TASKS, EARLY = 2, 8, 4
MASTER = f"local-cluster[{EXECUTORS},1,1024]"
SALTS = 4
_WITHIN_SECONDS = 300
_POLL_SECONDS = 0.05
KILLED = "killed"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_INDETERMINATE = "indeterminate output"
_DRIVER, _EXECUTORS = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
# Both are on since Spark 4.2.
_CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_SETTINGS = {
    "spark.sql.shuffle.partitions": str(TASKS),
    # The topics are small: all would come to one task.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.executor.memory": "512m",
}


@contextmanager
def by_rand() -> Iterator[Run]:
    """The salt is Spark's own rand()."""
    yield partial(_run, lambda: f.floor(f.rand() * SALTS).cast("int"), {})


@contextmanager
def by_function() -> Iterator[Run]:
    """The salt is a Python function, of which nobody said that it is random."""
    yield partial(_run, _python_salt, {})


@contextmanager
def by_function_unchecked() -> Iterator[Run]:
    """The same without the checksums by which Spark compares what a task made with what it made before."""
    yield partial(_run, _python_salt, dict.fromkeys(_CHECKSUMS, "false"))


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """A driver with its executors: those that run already, once what was killed is there again."""
    given = {**_SETTINGS, **brief(), "spark.authenticate.secret": secrets.token_hex()}
    with set_for_a_while(environment(sys.executable)), session(MASTER, **given) as spark:
        running: Any = spark.sparkContext._jsc
        # The driver is one of them.
        _wait_until(lambda: running.sc().getExecutorMemoryStatus().size() > EXECUTORS, "all executors")
        yield spark


def brief() -> dict[str, str]:
    """The settings of executors that soon end: they start as the driver does, and optimise no code."""
    return {_EXECUTORS: configuration(MASTER)[_DRIVER]}


def _python_salt() -> Column:
    return f.udf(lambda _: random.randrange(SALTS), "int")(f.col(TOPICS["orders"]))


def _run(salt: Callable[[], Column], settings: dict[str, str], topics: Topics, folder: Path) -> Outcome:
    """Join, while an executor is killed. Raises AssertionError if it was not, or if Spark retried nothing."""
    topics.land(folder / "topics")
    with cluster() as spark, _set(spark, settings), ThreadPoolExecutor(1) as pool:
        before = set(spark.sparkContext.statusTracker().getJobIdsForGroup())
        killing = pool.submit(kill_an_executor, folder)
        try:
            _join(spark, salt(), folder)
        except Py4JJavaError as error:
            killing.result()
            said = [line for line in str(error).splitlines() if _INDETERMINATE in line]
            if not said:
                raise
            return Outcome(Verdict.REFUSED, said=(said[0].partition("SparkException: ")[2],))
        killing.result()
        assert _is_retried(spark, before)
        return Outcome.of(rows_of(spark.read.parquet(str(folder / "joined")).collect()), topics.joined)


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def _join(spark: SparkSession, salt: Column, folder: Path) -> None:
    orders, payments = (spark.read.parquet(str(folder / "topics" / topic)) for topic in TOPICS)
    copies = payments.withColumn("salt", f.explode(f.array(*map(f.lit, range(SALTS)))))
    joined = orders.withColumn("salt", salt).join(copies, [KEY, "salt"]).select(*COLUMNS)
    joined.mapInArrow(partial(_held, folder), joined.schema).write.parquet(str(folder / "joined"))


def _held(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task: of the early ones at once, of the others after an executor was killed."""
    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    if number >= EARLY:
        wait_for(folder, KILLED)
    yield from batches
    (folder / f"done-{number}").touch()


def kill_an_executor(folder: Path) -> None:
    """Kill one as soon as the early tasks are done, and let the others go on. Raises AssertionError if there are not
    as many as there should be."""
    try:
        wait_for(folder, *(f"done-{number}" for number in range(EARLY)))
        # The driver is told that a task is done a moment after the task's last row.
        time.sleep(1)
        executors = list(_executors())
        assert len(executors) == EXECUTORS
        executors[0].kill()
        executors[0].wait(_WITHIN_SECONDS)
        # The driver sees the connection break.
        time.sleep(1)
    finally:
        (folder / KILLED).touch()


def _executors() -> Iterator[psutil.Process]:
    for each in psutil.Process().children(recursive=True):
        # Others may end meanwhile.
        with suppress(psutil.NoSuchProcess):
            if _EXECUTOR in each.cmdline():
                yield each


def wait_for(folder: Path, *files: str) -> None:
    """Wait for files. Raises TimeoutError if they do not come."""
    _wait_until(lambda: all((folder / file).exists() for file in files), f"{', '.join(files)} in {folder}")


def _wait_until(is_there: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WITHIN_SECONDS
    while not is_there():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody has seen {what}")
        time.sleep(_POLL_SECONDS)


def _is_retried(spark: SparkSession, before: set[int]) -> bool:
    """Whether a stage of any job but those before had a further attempt."""
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup() if job not in before)
    stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
    return any(stage.currentAttemptId > 0 for stage in stages if stage)
