"""Runs the work of a task group in a Spark application, each piece as a task."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from coset.sources import s3
from coset.sources.kafka import properties as kafka
from partitioning.commands import Repeat, Then
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.task_engine import MEMORY
from spark_jobs.group import RunTasks, Work, answer, pieces
from spark_jobs.waiting_for_workers import Tell, quiet, waiting_for_workers
from spark_jobs.worker_code import INSTALL, Wanted, installed

if TYPE_CHECKING:  # few groups need it
    from pyspark.sql import SparkSession

# How Spark says where a task failed, and that a worker's Python cannot run it.
_HOST = re.compile(r"\(TID \d+\) \((?P<host>\S+) executor")
_NO_PYTHON = re.compile(r'Cannot run program "(?P<python>[^"]+)"')
_OTHER_PYTHON = re.compile(r"different version: (?P<has>\d+\.\d+) than that in driver: (?P<wanted>\d+\.\d+)")
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[^']+)'")


def with_secrets(conf: SparkConf) -> SparkConf:
    """Add what no argument may show: this process's variables for the store and the brokers, for executors on other
    machines, and the secret of Spark's ports for a cluster that begins and ends with this application.

    The driver adds them, not the program that starts it: everybody on a machine can read a program's arguments.
    """
    master = conf.get("spark.master") or ""
    if not master.startswith("local"):
        # The variables of a pod are stored, and shown to all who may read pods: there credentials come by a reference.
        kept = s3.CREDENTIALS if master.startswith("k8s://") else ()
        for name, value in (s3.environment() | kafka.environment()).items():
            if name not in kept:
                conf.setIfMissing(f"spark.executorEnv.{name}", value)
    if master.startswith("local-cluster") and not conf.contains(f"{_SECRET}.file"):
        # Where tasks run in the driver itself, Spark makes one.
        conf.setIfMissing(_SECRET, secrets.token_hex())
    return conf


def tasks_of(spark: SparkContext, description: str, log: str, memory: str = MEMORY, tell: Tell = quiet) -> RunTasks:
    """A function that runs the work of a task group as one Spark job. Call it in a thread for each group.

    The function raises CosetError if Spark itself fails; the error names the `log`. It raises Unreachable if no worker
    accepts the job; `tell` is told before.
    """

    def run(work: Work, wanted: Wanted) -> Sequence[bytes]:
        spark.setJobDescription(description)
        asked = partial(answer, memory=memory, wanted=wanted)
        # With an RDD each task is sent its own piece only, and Spark's SQL engine need not start.
        try:
            with waiting_for_workers(spark, description, tell):
                sent = pieces(work, spark.defaultParallelism)
                return spark.parallelize(sent, len(sent)).map(asked).collect()
        except (PySparkException, Py4JError) as error:
            raise job_failed(error, description, log, hosts_of(spark)) from None

    return run


@contextmanager
def dataframes(spark: SparkContext, description: str, log: str, tell: Tell = quiet) -> Iterator[SparkSession]:
    """A new session for a group's steps on DataFrames. Raises CosetError if Spark itself fails meanwhile, and
    Unreachable as `tasks_of`."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark.setJobDescription(description)
    try:
        with waiting_for_workers(spark, description, tell):
            yield SparkSession(spark).newSession()
    except (PySparkException, Py4JError) as error:
        raise job_failed(error, description, log, hosts_of(spark)) from None


def hosts_of(spark: SparkContext) -> Sequence[str]:
    """The hosts on which the application's executors are."""
    hosts = set[str]()
    with suppress(PySparkException, Py4JError):
        # A context that has ended knows none.
        known = spark._jsc.sc().statusStore().executorList(True).iterator()
        while known.hasNext():
            executor = known.next()
            if executor.id() != "driver":
                hosts.add(executor.hostPort().rpartition(":")[0])
    return sorted(hosts)


def job_failed(error: Exception, description: str, log: str, hosts: Sequence[str] = ()) -> CosetError:
    """A Spark error as a finding, with the last cause that Spark names. It is a refusal if a worker's Python cannot run
    the job: then nothing was read."""
    if refused := _worker_refused(str(error), description, hosts):
        return refused
    return CosetError(
        Finding.of(
            Kind.SPARK,
            f"the Spark job failed: {last_cause(error)}",
            description,
            (f"see {log}, then ", Repeat()),
            job=description,
        )
    )


def cannot_start(error: Exception, master: str, log: str) -> CosetError:
    """An error that ended the start of Spark as a finding, which names the `log`."""
    what = f"Spark cannot start: {last_cause(error)}"
    return CosetError(Finding.of(Kind.SPARK, what, f"master {master}", (f"see {log}, then ", Repeat()), master=master))


def last_cause(error: Exception) -> str:
    """The line of an error's text that has the last cause, of those that Spark names.

    >>> last_cause(OSError("an error occurred\\n: java.io.IOException: no room\\n\\tat spark"))
    'java.io.IOException: no room'
    """
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or "Exception: " in line] or lines or [repr(error)]
    return causes[-1]


def _worker_refused(said: str, description: str, hosts: Sequence[str]) -> Refused | None:
    """The refusal if Spark says that there is no Python, another one, or one that lacks a module."""
    failed = [match["host"] for match in _HOST.finditer(said)]
    on = f"the worker on {failed[-1] if failed else ' or '.join(hosts)}" if failed or hosts else "a worker"
    if match := _NO_PYTHON.search(said):
        what = f"{on} has no Python {match['python']}"
        then: Then = ("name one that it has by `spark.pyspark.python`, then ", Repeat())
    elif match := _OTHER_PYTHON.search(said):
        what, then = f"{on} has Python {match['has']}; wanted is {match['wanted']}", INSTALL
    elif match := _NO_MODULE.search(said):
        what = f"the Python of {on} has no module {match['module']}; wanted is {installed()}"
        then = INSTALL
    else:
        return None
    return Refused.of(Kind.WORKER, what, description, then, job=description)
