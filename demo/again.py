"""The demo's backfill: runs its first batch again under another scheme, finds the rows identical, and swaps them in."""

from __future__ import annotations

import os

import pyarrow as pa
from deltalake import DeltaTable

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import backfill
from coset.batches.backfills.swaps import finish, swaps
from coset.batches.runners.connect import Connect
from coset.cli.output import show, step
from coset.sources.s3 import storage_options
from dags.pipelines.tail_activity import pipeline
from demo.home import STORE, Home
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import folder

_SCHEME = "tasks(12)"
_WHY = "the demo shows it"


def is_decided(store: Store) -> bool:
    """Whether the backfill is swapped in, or is about to be."""
    return any(swaps(store, pipeline.name))


def run(home: Home, store: Store) -> None:
    """Run the first batch again on the Spark server, beside the published data; compare, and swap."""
    request = actions.begin(pipeline, store, Asked(0, 0, Settings.parse(scheme=_SCHEME, groups=2), _WHY))
    with Connect(os.environ["SPARK_MASTER"], "1GB") as runner:
        actions.run(pipeline, store, request, runner, home.docs, step)
    with step("compare and swap") as said:
        found = actions.comparison(store, request)
        said.append(str(found))
        actions.swap(store, request, digest(found), _WHY)


def show_results(store: Store) -> None:
    """One line on the backfill. Raises CosetError if readers did not see the same rows before and after."""
    swapped, request = finish(store, pipeline.name), backfill(store, pipeline.name, 0)
    assert swapped is not None
    before, now = (_tasks(ledger) for ledger in (Ledger(store, pipeline.name), Ledger(store, request.name)))
    for table, version in swapped.tables.items():
        rows = _seen(table, version)
        if rows != _seen(table, version - 1):
            what, where = "a backfill changed the rows", f"{table}, version {version}"
            raise CosetError.of(Kind.DEMO, what, where, "report this", table=table, version=version)
        said = (
            f"Batch 0 was run again under {_SCHEME}, with {now} tasks instead of {before}, found identical, and swapped"
        )
        seen = f"readers see the same {len(rows):,} rows in {table} version {version} as in version {version - 1}"
        show(f"{said}: {seen}.", "")


def _tasks(ledger: Ledger) -> int:
    plan = ledger.plan(0)
    assert plan is not None
    return sum(len(stage.tasks) for stage in plan.stages)


def _seen(table: str, version: int) -> pa.Table:
    """The rows of a version of the table, without the column of tasks."""
    delta = DeltaTable(folder(store_at(STORE), table), version=version, storage_options=storage_options())
    return delta.to_pyarrow_table().drop_columns(["_task"]).sort_by([("_batch", "ascending"), ("tailnum", "ascending")])
