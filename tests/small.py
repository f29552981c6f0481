"""A small batch that is planned and stored: four tasks in two groups, over records that were really landed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pyarrow as pa

from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.model.plan import Plan
from tests.landed import land_table
from tests.running import next_batch

ROWS = 500
KEYS = 50
# Some seconds of DuckDB's time for a task, in little memory.
SLOW = "sum(levenshtein(repeat(k, 350), repeat(k, 350 + v % 3))) AS v"
# Longer than anybody waits.
ENDLESS = "sum(levenshtein(repeat(k, 2000), repeat(k, 2000 + v % 3))) AS v"


@dataclass(frozen=True)
class SmallBatch:
    """A batch, by what its tests ask for."""

    ref: BatchRef
    ledger: Ledger
    plan: Plan


def land(keys: int = KEYS) -> str:
    """Land the records in a place of their own; gives the source."""
    source = f"s3://test/{uuid.uuid4().hex}/topics"
    table = pa.table({"k": [f"key-{n % keys}" for n in range(ROWS)], "v": range(ROWS)})
    land_table(table, "views", source, key="k", partitions=4)
    return source


def small_batch(expression: str = "sum(v) AS v", source: str | None = None) -> SmallBatch:
    """The first batch of a pipeline that aggregates the records by key, in a store of its own."""
    pipeline = Pipeline("sums", source=source or land())
    pipeline.stream("views", key="k", partitions=4).aggregate(expression).write("sums")
    ref = next_batch(pipeline, f"s3://test/{uuid.uuid4().hex}")
    return SmallBatch(ref, *ref.load())


def until(reached: Callable[[], bool], within: float = 60) -> bool:
    """Wait until it is so, or for so many seconds."""
    deadline = time.monotonic() + within
    while not (is_so := reached()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so


def working(pid: int) -> bool:
    """Whether a Python process that was started by this one computes."""
    workers = psutil.Process(pid).children(recursive=True)
    for worker in workers:
        _busy(worker)
    time.sleep(0.5)
    # It is little for a worker on a busy machine, and more than one takes that waits.
    return any(_busy(worker) > 3 for worker in workers)


def _busy(process: psutil.Process) -> float:
    """Percent of a processor that a Python process took since it was last asked; 0 if it has ended, or is another."""
    try:
        return float(process.cpu_percent()) if "python" in process.name() else 0.0
    except psutil.NoSuchProcess:
        return 0.0
