"""The kernel: runs one task. Arrow in, DuckDB in the middle, Parquet out; nothing passes through the JVM."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from partitioning.errors import Finding, Refused
from partitioning.model.graph import quote
from partitioning.model.plan import Plan, PlannedWrite, Stage, TaskRef
from partitioning.model.receipt import TaskReceipt
from sources.s3 import filesystem
from spark_jobs.feed import Feed, Inspect
from spark_jobs.inspection import Inspection
from spark_jobs.output import Output
from spark_jobs.sql.database import connect, create_views

# DuckDB's own size of a row group.
_RESULT_ROWS = 122_880


def run_task(
    plan: Plan,
    task: TaskRef,
    attempt: int,
    store_root: str,
    *,
    memory: str = "1GB",
    inspect: Inspect = Inspection,
) -> TaskReceipt:
    """Read what the plan gives to `task`, run its stage's steps on it, write its result tables.

    What does not fit into `memory` is spilled to a temporary folder. Files go to folders of this run alone,
    so a task may be run any number of times; the receipt says what one run did.

    Raises Refused, with all findings, if an input file is not the planned one or cannot be read, or if
    an expression fails on the data.
    """
    started = time.monotonic()
    stage, files = plan.stage(task.stage), filesystem()
    reads = stage.tasks[task.task]
    feeds = [Feed(plan, stage, reads, stream, files, inspect) for stream in stage.streams]
    output = Output.of(plan, task, attempt, store_root, files)
    with tempfile.TemporaryDirectory(prefix="coset-task-") as temp, connect(memory, Path(temp)) as connection:
        work = _Work(connection, stage, feeds, f"task {task} of batch {plan.batch}")
        written = [output.write(write, rows) for write, rows in work.results()]
    # SQL may have stopped early, at an empty side of a join for instance; the proof is of all records.
    for feed in feeds:
        feed.drain()
    return TaskReceipt(
        task,
        tuple(receipt for feed in feeds for receipt in feed.receipts()),
        tuple(file for file in written if file is not None),
        output.write_keys(_sampled(feeds)),
        round(time.monotonic() - started, 3),
    )


def _sampled(feeds: Sequence[Feed]) -> list[tuple[str, int, pa.Table]]:
    return [
        (feed.stream.name, partition, inspection.keys())
        for feed in feeds
        for partition, inspection in feed.inspections.items()
    ]


class _Work:
    """The SQL of one task: a relation for each stream, a view for each step, a query for each table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, stage: Stage, feeds: Sequence[Feed], where: str) -> None:
        self._connection = connection
        self._stage = stage
        self._feeds = feeds
        self._where = where
        scans = _scans(stage)
        for feed in feeds:
            with self._errors(f"stream {feed.stream.name!r}"):
                self._relation(feed, scans[feed.stream.name])
        create_views(connection, stage.steps)

    def results(self) -> Iterator[tuple[PlannedWrite, pa.RecordBatchReader]]:
        """Each result table and its rows, one after the other."""
        for write in self._stage.writes:
            columns = ", ".join(quote(column.name) for column in write.columns)
            where = f"table {write.declared.table!r}"
            with self._errors(where):
                query = self._connection.execute(f"SELECT {columns} FROM {quote(write.declared.step)}")
                rows = query.to_arrow_reader(_RESULT_ROWS)
            yield write, pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows, where))

    def _batches(self, rows: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self._errors(where):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch

    def _relation(self, feed: Feed, scans: int) -> None:
        """Give a stream its name in SQL: read as it comes if one query needs it once, else kept in DuckDB."""
        name = quote(feed.stream.name)
        if feed.empty:
            columns = ", ".join(f"{quote(column)} {kind}" for column, kind in feed.columns.items())
            self._connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
            return
        # No stream has this name: `@` is in none.
        raw = f"{feed.stream.name}@feed"
        self._connection.register(raw, feed)
        columns = ", ".join(
            f"CAST({quote(column)} AS {kind}) AS {quote(column)}" for column, kind in feed.columns.items()
        )
        declared = feed.stream.declared
        if declared.table:
            key = quote(declared.key)
            newest = f"row_number() OVER (PARTITION BY {key} ORDER BY {quote(declared.offset)} DESC) = 1"
            query = f"SELECT {columns} FROM {quote(raw)} QUALIFY {key} IS NULL OR {newest}"
        else:
            query = f"SELECT {columns} FROM {quote(raw)}"
        kept = declared.table or scans > 1
        self._connection.execute(f"CREATE TEMP {'TABLE' if kept else 'VIEW'} {name} AS {query}")

    @contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Raise what went wrong in a feed as it was; explain what went wrong in DuckDB."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for feed in self._feeds:
                if feed.error is not None:
                    raise feed.error from None
            raise Refused(
                Finding(
                    f"SQL failed: {' '.join(str(error).split())}",
                    f"{where}, {self._where}",
                    "give the task more memory with --memory"
                    if isinstance(error, duckdb.OutOfMemoryException)
                    else "correct the expression or the data, then run again",
                )
            ) from error


def _scans(stage: Stage) -> Counter[str]:
    """How often each stream and step is read when all result tables are written."""
    scans = Counter(write.declared.step for write in stage.writes)
    for step in reversed(stage.steps):
        for name in step.inputs:
            scans[name] += scans[step.name]
    return scans
