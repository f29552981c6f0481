"""What spark-submit runs: one task group of a plan, one Spark task per task; its receipt goes to the store.

spark-submit spark_jobs/run_group.py --plan s3://…/plans/0.json --digest sha256:… --group 0
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from partitioning.documents import locations as locality
from partitioning.documents.ledger import open_plan
from partitioning.documents.locations import LocationIdProvider, check_location
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt
from spark_jobs import errors
from spark_jobs.location import ENVIRONMENT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task group. The exit code is 0, or that of the error, whose findings go to stderr."""
    parser = argparse.ArgumentParser(prog="run_group.py", description=__doc__)
    parser.add_argument("--plan", required=True, metavar="URI", help="the plan document, s3://…/plans/<N>.json")
    parser.add_argument("--digest", required=True, help="the digest that the plan must have")
    parser.add_argument("--group", required=True, type=int, help="the number of the task group")
    parser.add_argument("--memory", default="1GB", help="what DuckDB may use in each task before it spills")
    given = parser.parse_args(arguments)
    try:
        print(run(given.plan, given.digest, given.group, given.memory))
    except CosetError as error:
        print(errors.to_text(error), file=sys.stderr)
        return error.exit_code
    return 0


def run(
    plan_uri: str, plan_digest: str, number: int, memory: str = "1GB", provider: LocationIdProvider = ENVIRONMENT
) -> str:
    """Run the group unless that is done or decided; a sentence on what was done.

    Raises Refused if the plan is not the one that was meant or has no such group, or with all findings of
    its tasks.
    """
    ledger, plan = open_plan(plan_uri, plan_digest)
    group = next((group for group in plan.groups if group.group == number), None)
    if group is None:
        listed = ", ".join(str(each.group) for each in plan.groups)
        raise Refused(Finding(f"there is no task group {number}", plan_uri, f"use one of {listed}"))
    name = f"group {number} of batch {plan.batch} of {plan.pipeline}"
    verdict = ledger.verdict(plan.batch)
    if verdict is not None:
        return f"{name}: nothing to do, the batch is decided ({verdict.decision})"
    attempt = ledger.attempt(plan.batch)
    if ledger.receipt(plan.batch, attempt, number) is not None:
        return f"{name}: nothing to do, attempt {attempt} has run"
    location = check_location(provider.location())
    tasks = _run_tasks(plan, group, attempt, ledger.store.root, memory)
    ledger.put_receipt(Receipt(plan_digest, number, attempt, tasks), plan.batch)
    read = sum(partition.read for task in tasks for partition in task.partitions)
    written = sum(file.records for task in tasks for file in task.files)
    done = f"{name}: {len(tasks)} tasks read {read:,} records and wrote {written:,} rows, attempt {attempt}"
    return done + _note(ledger.store, plan, group, location)


def _note(store: Store, plan: Plan, group: TaskGroup, location: str) -> str:
    """Store where the group ran. If that fails the batch goes on: its receipt is there, and this is but a hint."""
    try:
        locality.put(store, plan, group, location)
    except CosetError as error:
        return f"; that it ran at {location} could not be stored: {error.findings[0].what}"
    return f", at {location}"


def _run_tasks(plan: Plan, group: TaskGroup, attempt: int, root: str, memory: str) -> tuple[TaskReceipt, ...]:
    """Run the group's tasks in Spark, each as a task of Spark's. Raises Refused with the findings of all."""
    # Spark's workers must run an interpreter that has Coset; this one has it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # An RDD of task numbers: Spark's SQL engine would only have to be started and would do nothing.
    with SparkContext(conf=SparkConf().setAppName(f"{plan.pipeline} batch {plan.batch} group {group.group}")) as spark:
        tasks = spark.parallelize(group.tasks, len(group.tasks))
        try:
            answers = tasks.map(lambda task: _answer(plan, task, attempt, root, memory)).collect()
        except (PySparkException, Py4JError) as error:
            raise _job_failed(error, group) from None
    failed = [errors.from_json(answer) for answer in answers if isinstance(answer, str)]
    if failed:
        findings = dict.fromkeys(finding for error in failed for finding in error.findings)
        raise type(max(failed, key=lambda error: error.exit_code))(*findings)
    return tuple(answers)


def _answer(plan: Plan, task: TaskRef, attempt: int, root: str, memory: str) -> TaskReceipt | str:
    """A task's receipt; or its error as text, since Spark would try again in vain and bury the findings."""
    from spark_jobs.kernel import run_task  # noqa: PLC0415  what it imports is large and not needed in the driver

    try:
        return run_task(plan, task, attempt, root, memory=memory)
    except CosetError as error:
        return errors.to_json(error)


def _job_failed(error: Exception, group: TaskGroup) -> CosetError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or "Exception: " in line] or lines
    listed = ", ".join(str(task) for task in group.tasks)
    return CosetError(Finding(f"the Spark job failed: {causes[-1]}", f"tasks {listed}", "see Spark's log, run again"))


if __name__ == "__main__":
    sys.exit(main())
