"""Coset's kernel in Spark, on its S3 store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext

from batches.audit import audit
from batches.runners.spark_submit import configuration
from bench.party import MASTER, Run, shuffled
from bench.workload import STORE, Workload, pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt, TaskReceipt
from partitioning.model.streams import InputFile
from partitioning.planning.planner import plan_batch
from sources.landed import discover
from spark_jobs.feed import Inspect
from spark_jobs.inspection import Inspection
from spark_jobs.kernel import run_task
from spark_jobs.sql.check import check


class Unproved(Inspection):
    """No inspection at all: what the proof costs is the difference."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def take(self, batch: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
        return batch

    def keys(self) -> pa.Table:
        return pa.schema([("key", pa.string()), ("offset", pa.int64())]).empty_table()


@contextmanager
def proved(workload: Workload) -> Iterator[Run]:
    """Coset's kernel in Spark on the S3 store, with receipts and the audit of them."""
    with _session(Inspection) as (plan, run):

        def run_and_audit(number: int) -> tuple[list[str], int]:
            tasks, shuffled = run(number)
            ledger = Ledger(S3Store(STORE), plan.pipeline)
            ledger.put_receipt(Receipt(digest(plan), 0, number, tasks), plan.batch)
            coverage = audit(ledger, plan, number).coverage
            assert (coverage["taken"] == coverage["planned"]).all()
            assert (coverage["digest_found"] == coverage["digest_planned"]).all()
            return _files(tasks), shuffled

        yield run_and_audit


@contextmanager
def unproved(workload: Workload) -> Iterator[Run]:
    """The same without any of the proof."""
    with _session(Unproved) as (_, run):

        def only_run(number: int) -> tuple[list[str], int]:
            tasks, shuffled = run(number)
            return _files(tasks), shuffled

        yield only_run


@contextmanager
def _session(inspect: Inspect) -> Iterator[tuple[Plan, Callable[[int], Any]]]:
    made = pipeline()
    found = discover(made.streams)
    plan = plan_batch(made, found, check(made, found), settings=Settings(groups=1))
    assert plan is not None
    settings = {**configuration(MASTER), "spark.master": MASTER, "spark.app.name": "bench"}
    with SparkContext(conf=SparkConf().setAll(list(settings.items()))) as spark:

        def run(number: int) -> tuple[tuple[TaskReceipt, ...], int]:
            tasks = spark.parallelize(plan.groups[0].tasks, len(plan.groups[0].tasks))
            before = shuffled(spark)
            receipts = tasks.map(lambda task: run_task(plan, task, number, STORE, inspect=inspect)).collect()
            return tuple(receipts), shuffled(spark) - before

        yield plan, run


def _files(tasks: tuple[TaskReceipt, ...]) -> list[str]:
    return [f"{STORE}/tables/{file.table}/{file.path}" for task in tasks for file in task.files]
