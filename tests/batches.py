"""Batches made by hand, for tests of what comes after a run: without Spark and without landed files."""

from __future__ import annotations

import io
from hashlib import sha256

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches.attempt import Attempt
from coset.batches.publication import decide
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.plan import Plan, PlannedWrite, TaskRef
from partitioning.model.receipt import Artefact, Receipt, Role, TaskReceipt
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile
from partitioning.model.verdict import Judged
from partitioning.planning.planner import plan_batch
from spark_jobs.tables.table_schema import table_schema
from tests.logs import log_of
from tests.there import there

NAME = "tails"
RECORDS = 10
COLUMNS = (Column("tailnum", "VARCHAR"), Column("delay", "BIGINT"))
PASSED = Judged(60, 6, 0, 1, 4, 4)


def pipeline(*tables: str, lineage: bool = False, named: str = NAME) -> Pipeline:
    """Two streams that meet in two tasks of the stage `flights+planes`, written to `tables`."""
    made = Pipeline(named, source="s3://landing/topics")
    flights = made.stream("flights", key="tailnum", partitions=4)
    planes = made.stream("planes", key="tailnum", partitions=2)
    joined = flights.join(planes, "flights.delay", name="joined")
    for table in tables or ("delays",):
        joined.write(table, lineage=lineage)
    return made


def planned(made: Pipeline, batch: int = 0, before: Plan | None = None, columns: tuple[Column, ...] = COLUMNS) -> Plan:
    """The plan of `batch`, in which ten records have arrived in each stream partition since the one before."""
    found = [
        Discovered(stream.name, COLUMNS, tuple(_arrived(number, batch) for number in range(stream.partitions)))
        for stream in made.streams
    ]
    plan = there(
        plan_batch(
            made,
            found,
            {write.table: columns for write in made.writes},
            batch=batch,
            parent=digest(before) if before else None,
            published=before,
        )
    )
    return plan


def run(ledger: Ledger, plan: Plan, attempt: int = 0, *, empty: bool = False) -> None:
    """Store what the task groups of an attempt would: a data file per table and task, a receipt per group."""
    for group in plan.groups:
        tasks = tuple(
            TaskReceipt(
                task,
                (),
                () if empty else tuple(_write(ledger.store, plan, write, task, attempt) for write in plan.writes()),
                1500,
            )
            for task in group.tasks
        )
        ledger.put_receipt(Receipt(digest(plan), group.group, attempt, tasks), plan.batch)


def decided(
    root: str, made: Pipeline | None = None, batch: int = 0, before: Plan | None = None, named: str = NAME
) -> tuple[Ledger, Plan]:
    """A batch that is planned, run and decided, and waits for its publication."""
    ledger = Ledger(store_at(root), named)
    plan = ledger.put_plan(planned(made or pipeline(named=named), batch, before))
    run(ledger, plan)
    decide(Attempt(ledger, plan, 0), PASSED)
    return ledger, plan


def rows(root: str, table: str = "delays") -> list[tuple[object, ...]]:
    """All rows of a result table, as DuckDB reads them through the Delta log."""
    dataset = log_of(store_at(root), table).to_pyarrow_dataset()  # noqa: F841
    with duckdb.connect() as connection:
        return connection.execute("SELECT * FROM dataset ORDER BY ALL").fetchall()


def data_files(store: Store, table: str = "delays") -> list[str]:
    """The keys of the files of rows that were written for a table."""
    return [entry.key for entry in store.list(f"tables/{table}/data/")]


def expected(batch: int) -> list[tuple[object, ...]]:
    """The rows that `run` writes to each table in a batch."""
    return sorted((f"N{task}-{n}", batch) for task in range(2) for n in range(RECORDS))


def erase(root: str, *keys: str) -> None:
    """Remove objects, as an accident would; Coset itself removes nothing."""
    for key in keys:
        store_at(root).delete(key)


def _arrived(partition: int, batch: int) -> DiscoveredPartition:
    files = (
        InputFile(f"partition={partition}/{start}.parquet", 1000, f"etag-{start}", start, start + RECORDS)
        for start in range(0, (batch + 1) * RECORDS, RECORDS)
    )
    return DiscoveredPartition(partition, tuple(files))


def _write(store: Store, plan: Plan, write: PlannedWrite, task: TaskRef, attempt: int) -> Artefact:
    columns: dict[str, list[object]] = {
        "tailnum": [f"N{task.task}-{n}" for n in range(RECORDS)],
        "delay": [plan.batch] * RECORDS,
        "_batch": [plan.batch] * RECORDS,
        "_task": [task.task] * RECORDS,
    }
    wanted = table_schema(write)
    sink = io.BytesIO()
    pq.write_table(pa.table({name: columns[name] for name in wanted.names}, schema=wanted), sink)
    data = sink.getvalue()
    attempted = f"plan-{plan.batch}/attempt-{attempt}-{plan.pipeline}"
    path = f"tables/{write.declared.table}/data/{attempted}/{task.stage}-{task.task}.parquet"
    store.put_new(path, data)
    entry = there(store.head(path))
    digest_of_file = f"sha256:{sha256(data).hexdigest()}"
    return Artefact(Role.TABLE, write.declared.table, path, entry.size, entry.etag, digest_of_file, RECORDS)
