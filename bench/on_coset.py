"""Coset's kernel in Spark, on its S3 store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import SparkConf, SparkContext

from bench.making import STORE, pipeline_for
from bench.party import CORES, MASTER, Run, shuffled
from bench.workload import Workload
from coset.batches import steps
from coset.batches.audit import audit
from coset.batches.runners.spark_settings import configuration
from coset.sources.reader import Batch
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode, digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.artefact import Role
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered
from partitioning.model.plan import Plan, PlannedPartition
from partitioning.model.receipt import PartitionReceipt, Receipt, TaskReceipt
from partitioning.model.schemes import tasks
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.intake import Inspect, Proved, of_rows
from spark_jobs.engine.kernel import run_orders
from spark_jobs.engine.proof import SAMPLED
from spark_jobs.engine.residues import rows_by_residue, rows_of
from spark_jobs.engine.set_aside import SetAsideRecord
from spark_jobs.group import encoded, orders_of, pieces


class Unproved:
    """No inspection: the difference is the cost of the proof. Tasks that share partitions take records by their keys,
    of which the workload's records all have one."""

    columns = ()

    def __init__(self, order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> None:
        self._name, self._planned, self._placement = ordered.name, planned, ordered.placement
        self._kept = order.task.filters.get(ordered.name)

    def records(self, batch: Batch) -> pa.RecordBatch:
        if self._kept is None:
            return batch.records
        modulus = self._kept.modulus
        rows, begins = batch.once(modulus, lambda: rows_by_residue(self._hashes(batch), np.uint32(modulus)))
        return of_rows(batch.records, rows_of(self._kept.residues, rows, begins))

    def _hashes(self, batch: Batch) -> np.ndarray:
        return placement_hashes(batch.records.column(self._placement.key), self._placement.key_format)

    def receipt(self) -> PartitionReceipt:
        planned, none = self._planned, (0, 0, 0, 0)
        return PartitionReceipt(
            self._name, planned.partition, planned.start, planned.end, *none, "", *none, offenders=(), heavy=()
        )

    def keys(self) -> pa.Table:
        return SAMPLED.empty_table()

    def set_aside(self) -> Sequence[SetAsideRecord]:
        return ()


@contextmanager
def proved(workload: Workload) -> Iterator[Run]:
    """Coset's kernel in Spark on the S3 store, with receipts and their audit."""
    with _session(workload, Proved) as (plan, run):

        def run_and_audit(number: int) -> tuple[list[str], int]:
            tasks, shuffled = run(number)
            ledger = Ledger(store_at(STORE), plan.pipeline)
            ledger.put_receipt(Receipt(digest(plan), 0, number, tasks), plan.batch)
            coverage = audit(ledger, plan, number).coverage
            assert (coverage["taken"] == coverage["planned"]).all()
            assert (coverage["digest_found"] == coverage["digest_planned"]).all()
            return _files(tasks), shuffled

        yield run_and_audit


@contextmanager
def unproved(workload: Workload) -> Iterator[Run]:
    """The same without the proof."""
    with _session(workload, Unproved) as (_, run):

        def only_run(number: int) -> tuple[list[str], int]:
            tasks, shuffled = run(number)
            return _files(tasks), shuffled

        yield only_run


@contextmanager
def _session(workload: Workload, inspect: Inspect) -> Iterator[tuple[Plan, Callable[[int], Any]]]:
    settings = Settings(groups=1, scheme=tasks(workload.tasks) if workload.tasks else None)
    ref, _ = steps.plan(pipeline_for(workload.query), STORE, settings)
    assert ref is not None
    _, plan = ref.load()
    options = {**configuration(MASTER), "spark.master": MASTER, "spark.app.name": "bench"}
    with SparkContext(conf=SparkConf().setAll(list(options.items()))) as spark:

        def run(number: int) -> tuple[tuple[TaskReceipt, ...], int]:
            sent = pieces(encoded(orders_of(plan, plan.groups[0], number, STORE, {})), CORES)
            before = shuffled(spark)
            done = spark.parallelize(sent, len(sent)).map(lambda piece: _receipts(piece, inspect)).collect()
            tasks = chain.from_iterable(
                msgspec.json.decode(receipts, type=tuple[TaskReceipt, ...]) for receipts in done
            )
            return tuple(tasks), shuffled(spark) - before

        yield plan, run


def _receipts(piece: bytes, inspect: Inspect) -> bytes:
    orders = [decode(Order, bytes(order), "order") for order in msgspec.json.decode(piece, type=list[msgspec.Raw])]
    return msgspec.json.encode(run_orders(orders, inspect=inspect))


def _files(tasks: tuple[TaskReceipt, ...]) -> list[str]:
    return [f"{STORE}/{artefact.path}" for task in tasks for artefact in task.left(Role.TABLE)]
