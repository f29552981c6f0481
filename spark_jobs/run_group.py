"""The program that spark-submit starts. It runs one task group of a plan and stores the group's receipt.

spark-submit spark_jobs/run_group.py --plan s3://…/plans/0.json.gz --digest sha256:… --group 0
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING

# This has to come before PySpark is imported.
import spark_jobs.installed  # noqa: F401

# isort: split
import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from partitioning.documents.document import digest
from partitioning.documents.ledger import open_plan
from partitioning.errors import CosetError
from partitioning.model.failure import Failed, Failure
from partitioning.model.task_engine import MEMORY
from spark_jobs.group import Work, run_group
from spark_jobs.on_spark import cannot_start, dataframes, tasks_of, with_secrets
from spark_jobs.waiting_for_workers import MEANWHILE
from spark_jobs.worker_code import Wanted

if TYPE_CHECKING:  # few groups need it
    from spark_jobs.frames import Dataframes

_LOOK_EVERY_SECONDS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task group. Returns 0, or the exit code of the error that it prints to stderr.

    With `--failure` the error is stored too, for the process that submitted the application.
    """
    parser = argparse.ArgumentParser(prog="run_group.py", description=__doc__)
    parser.add_argument("--plan", required=True, metavar="URI", help="the plan document, s3://…/plans/<N>.json.gz")
    parser.add_argument("--digest", required=True, help="the digest that the plan must have")
    parser.add_argument("--group", required=True, type=int, help="the number of the task group")
    parser.add_argument("--memory", default=MEMORY, help="how much memory DuckDB may use in a task before it spills")
    parser.add_argument("--log", metavar="FILE", help="the file with Spark's output, which errors name")
    parser.add_argument("--submitter", type=int, metavar="PID", help="the process without which the application ends")
    parser.add_argument("--failure", metavar="NAME", help="the name of the document that stores an error")
    asked = parser.parse_args(arguments)
    try:
        ledger, plan = open_plan(asked.plan, asked.digest)
        try:
            with ExitStack() as ends:
                application = _Application(asked, ends)
                print(run_group(ledger, plan, asked.group, application.run, application.dataframes, asked.memory))
        except CosetError as error:
            if asked.failure:
                ledger.put_failure(Failure(digest(plan), asked.group, Failed.of(error)), plan.batch, asked.failure)
            raise
    except CosetError as error:
        print(f"{type(error).__name__}:\n{error}", file=sys.stderr)
        return error.exit_code
    return 0


class _Application:
    """A Spark application that starts when there is something to run."""

    def __init__(self, asked: argparse.Namespace, ends: ExitStack) -> None:
        self._asked = asked
        self._ends = ends
        self._name = f"group {asked.group} of {asked.plan}"
        self._log = f"Spark's log, {asked.log}" if asked.log else "the log of spark-submit"

    def run(self, work: Work, wanted: Wanted) -> Sequence[bytes]:
        """Run the work of the group."""
        return tasks_of(self._spark, self._name, self._log, self._asked.memory, _tell)(work, wanted)

    @property
    def dataframes(self) -> Dataframes:
        return lambda: dataframes(self._spark, self._name, self._log, _tell)

    @cached_property
    def _spark(self) -> SparkContext:
        # A configuration of before Spark's JVM has nothing of what was given to spark-submit.
        SparkContext._ensure_initialized()
        conf = with_secrets(SparkConf().setAppName(self._name))
        # Elsewhere, on the host of a cluster's driver, the number would be another process.
        if self._asked.submitter is not None and conf.get("spark.submit.deployMode", "client") == "client":
            Thread(target=_end_with, args=(self._asked.submitter,), daemon=True).start()
        if (conf.get("spark.master") or "").startswith("local"):
            # Spark's workers need an interpreter that has Coset, as this one.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        try:
            return self._ends.enter_context(SparkContext(conf=conf))
        except (PySparkException, Py4JError) as error:
            raise cannot_start(error, conf.get("spark.master") or "", self._log) from None


def _end_with(submitter: int) -> None:
    """End this program, and with it the application, as soon as the process that submitted it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(submitter)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_LOOK_EVERY_SECONDS)
    os._exit(1)


def _tell(sentence: str) -> None:
    """Print a sentence for who submitted the application, in the midst of what Spark prints."""
    print(f"{MEANWHILE}{sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
