"""Runs task groups in one Spark application: each group is a Spark job, and several run at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from coset.batches.ref import BatchRef
from coset.batches.runners.given_settings import Settings
from coset.batches.runners.jobs import Jobs
from coset.batches.runners.runner import TellOf, nobody
from coset.batches.runners.shipped import Shipped
from coset.batches.runners.spark_settings import PYTHON, check_reach, configuration, environment, log_file
from partitioning.errors import CosetError
from partitioning.model.task_engine import MEMORY
from spark_jobs.group import Work, group_name, run_group
from spark_jobs.on_spark import cannot_start, dataframes, last_cause, tasks_of, with_secrets
from spark_jobs.waiting_for_workers import Tell, quiet
from spark_jobs.worker_code import Wanted

if TYPE_CHECKING:  # few groups need it
    from pyspark.sql import SparkSession

# `SparkContext` sets these when it starts; the values are its defaults.
_SET_BY_PYSPARK = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}


class Spark:
    """Runs groups in a Spark application, which starts when the first group has something to run."""

    has_spark = True
    # A group may have fewer tasks than there are cores.
    at_once = 4

    def __init__(
        self, master: str, memory: str = MEMORY, settings: Settings = MappingProxyType({}), tell: TellOf | None = None
    ) -> None:
        self._master = master
        self._tell = tell or nobody
        self._memory = memory
        self._settings = settings
        self._jobs = Jobs()
        self._lock = Lock()
        self._started: SparkContext | None = None
        self._log: Path | None = None
        self._log_is_named = False
        self._ends = ExitStack()

    def __enter__(self) -> Spark:
        # Groups run in threads. Adding a variable to the environment while C code of another thread reads it can end
        # the process, so all variables that Spark sets are set before.
        os.environ.update(environment())
        for name, default in _SET_BY_PYSPARK.items():
            os.environ.setdefault(name, default)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
        if self._log is not None and not self._log_is_named:
            self._log.unlink()

    def group(self, batch: BatchRef, number: int) -> str:
        check_reach(batch, self._master)
        ledger, plan = batch.load()
        name, tell = group_name(plan, number), partial(self._tell, number)
        return run_group(
            ledger,
            plan,
            number,
            lambda work, wanted: self._run(work, wanted, name, tell),
            lambda: self._dataframes(name, tell),
            self._memory,
        )

    def cancel(self) -> None:
        self._jobs.end(self._end_jobs)

    def _end_jobs(self) -> None:
        if self._started is not None:
            self._started.cancelAllJobs()

    def _run(self, work: Work, wanted: Wanted, name: str, tell: Tell) -> Sequence[bytes]:
        with self._job(name) as (spark, log):
            return tasks_of(spark, name, log, self._memory, tell)(work, wanted)

    @contextmanager
    def _dataframes(self, name: str, tell: Tell = quiet) -> Iterator[SparkSession]:
        with self._job(name) as (spark, log), dataframes(spark, name, log, tell) as session:
            yield session

    @contextmanager
    def _job(self, name: str) -> Iterator[tuple[SparkContext, str]]:
        """The application and its log, for the job of a group."""
        self._jobs.check(name)
        spark, log = self._application()
        try:
            with self._jobs.waiting_for(name):
                yield spark, f"Spark's log, {log}"
        except CosetError:
            self._log_is_named |= not self._jobs.cancelled
            raise

    def _application(self) -> tuple[SparkContext, Path]:
        """The running application, or a new one, and its log."""
        with self._lock:
            self._log = self._log or log_file("spark")
            if self._started is None:
                archive = Shipped().archive()
                try:
                    settings = configuration(self._master, self._settings)
                    self._started = self._ends.enter_context(application(self._master, settings, self._log))
                    if archive:
                        self._started.addPyFile(archive)
                except (PySparkException, Py4JError, OSError) as error:
                    self._log_is_named = True
                    raise cannot_start(error, self._master, f"Spark's log, {self._log}") from error
            return self._started, self._log


@contextmanager
def application(master: str, settings: Mapping[str, str], log: Path) -> Iterator[SparkContext]:
    """A Spark application whose JVM writes to a log file. It ends with this process, however that ends."""
    conf = SparkConf().setMaster(master).setAppName("coset").setAll(list(settings.items()))
    with log.open("ab") as to:
        java = launch_gateway(conf, {"stdout": to, "stderr": to})  # type: ignore[no-untyped-call]
    try:
        with _context(conf, java) as spark:
            # PySpark itself asks the environment only, which other threads may be reading.
            spark.pythonExec = settings[PYTHON]
            yield spark
    finally:
        end_java(java)


def _context(conf: SparkConf, java: Any) -> SparkContext:
    try:
        return SparkContext(conf=with_secrets(conf), gateway=java)
    except Py4JJavaError as error:
        # Its text is asked of the JVM, which is about to end.
        raise Py4JError(last_cause(error)) from None


def end_java(java: Any) -> None:
    """End the JVM behind a gateway of PySpark, and wait for it: PySpark alone keeps it until the process ends."""
    java.shutdown()
    # The JVM reads its input until it is closed, and ends then.
    java.proc.stdin.close()
    java.proc.wait()
    # Otherwise PySpark would give the ended JVM to the next application.
    SparkContext._gateway = SparkContext._jvm = None
