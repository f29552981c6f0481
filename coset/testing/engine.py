"""The engine of runs for tests: all that lands records, runs a batch and reads tables, with the libraries it needs.

A file of tests imports `coset.testing` at once, and this with the first run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from coset.batches import steps
from coset.batches.interpreter import run_batch, silently
from coset.batches.pace import warned
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.tables.first_rows import first_rows
from coset.batches.tables.iceberg_place import ASKED as CATALOGUE
from coset.batches.tables.table_base import ASKED as PLACE
from coset.sources.landing import land_rows
from coset.testing.likeness import MOST_ROWS, plain_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.graph import quote
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.streams import Stream
from partitioning.values import replace
from spark_jobs.engine.task_database import connect

# The records of a stream, by columns.
Records = Sequence[Mapping[str, object]]
# Of the columns that no stream declares, by stream and name.
Types = dict[tuple[str, str], pa.DataType]


def land(stream: Stream, rows: Records, declared: Mapping[str, str], types: Types) -> None:
    """Land records of a stream, with the types that are declared, else those they had before; new ones are noted."""
    # Nobody knows how producers place keys of an opaque stream: this way is as good as any.
    placed = replace(stream, hash=MURMUR2) if stream.hash == OPAQUE else stream
    land_rows(placed, _table(stream.name, rows, declared, types), f"rows of stream {stream.name!r}")


@contextmanager
def alone() -> Iterator[None]:
    """Tables lie in the folder of a trial alone, whatever place and catalogue the environment asks for."""
    asked = {name: os.environ.pop(name) for name in (PLACE, CATALOGUE) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(asked)


@alone()
def run(pipeline: Pipeline, root: str, settings: Settings, *, twice: bool) -> str:
    """Run what has landed as one batch; its verdict in a sentence. If `twice`, a first attempt is given up.

    Raises what a step of a batch raises.
    """
    batch, sentence = steps.take_up(pipeline, root, settings)
    if batch is None:
        return sentence
    with Local(processes=1) as runner:
        if twice:
            _run_in_vain(batch, runner)
        # Nobody would see pages, which a quarter of the time would go into.
        run_batch(batch, runner, None, silently)
    ledger, plan = batch.load()
    verdict = ledger.verdict(plan.batch)
    return f"Batch {plan.batch}: {verdict.why if verdict else 'no verdict'}"


@alone()
def warnings(pipeline: str, root: str) -> tuple[str, ...]:
    """What the batch that was published last was warned of."""
    ledger = Ledger(store_at(root), pipeline)
    plan = ledger.standing().published
    verdict = ledger.verdict(plan.batch) if plan else None
    found = warned(ledger, plan.batch, verdict.attempt) if plan and verdict else ()
    return tuple(one.what for one in found)


@alone()
def rows(root: str, table: str) -> list[dict[str, object]]:
    """The rows of a result table, sorted and without lineage."""
    found = first_rows(store_at(root), table, MOST_ROWS)
    return [] if found is None else plain_rows(found.rows)


def _run_in_vain(ref: BatchRef, runner: Local) -> None:
    ledger, plan = ref.load()
    for group in plan.groups:
        runner.group(ref, group.group)
    ledger.close_attempt(plan.batch, ledger.attempt(plan.batch), canonical({"findings": []}))


def _table(stream: str, rows: Records, declared: Mapping[str, str], types: Types) -> pa.Table:
    """The records of a stream with the union of their columns, each of the type that it had before."""
    columns = dict.fromkeys(name for row in rows for name in row)
    values = {name: pa.array([row.get(name) for row in rows]) for name in columns}
    for name, column in values.items():
        if pa.types.is_null(column.type):
            values[name] = column.cast(types.get((stream, name), pa.string()))
        elif name not in declared:
            types[stream, name] = column.type
    table = pa.table(values)
    return _as_declared(table, declared) if declared else table


def _as_declared(rows: pa.Table, declared: Mapping[str, str]) -> pa.Table:
    """The rows with the columns and types that a stream declares, and those that it does not declare as they are."""
    there = set(rows.column_names)
    values = {name: quote(name) if name in there else "NULL" for name in declared}
    cast = [f"CAST({values[name]} AS {kind}) AS {quote(name)}" for name, kind in declared.items()]
    others = [quote(name) for name in rows.column_names if name not in declared]
    with connect() as connection:
        connection.register("given", rows)
        return connection.sql(f"SELECT {', '.join([*others, *cast])} FROM given").to_arrow_table()
