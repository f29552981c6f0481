"""Accepted rows: what others took out of an appended table and put into it, which somebody has accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import pyarrow as pa

from coset.batches.tables.batch_versions import lacks
from coset.batches.tables.first_rows import all_rows
from coset.batches.tables.others import accepted_changes
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.graph import Write, quote
from partitioning.model.meaning import is_log
from spark_jobs.engine.task_database import connect


def accepted_in(ledger: Ledger, pipeline: Pipeline, write: Write, upto: int | None) -> tuple[Sequence[int], bool]:
    """The versions in which others changed appended rows of a table, as somebody accepted; whether these are all."""
    found = accepted_changes(ledger.store, write, pipeline.name, upto) if write.mode.only_adds else ()
    step = pipeline.step_of(write.step)
    if not found:
        return (), found is not None
    # A changelog has rows of what goes, too.
    there = (not lacks(ledger, write.table, each) for version in found for each in (version - 1, version))
    return (found, True) if not (step and is_log(step)) and all(there) else ((), False)


def rows_accepted(
    store: Store,
    write: Write,
    versions: Iterable[int],
    since: int,
    of_part: Callable[[pa.RecordBatchReader], pa.RecordBatchReader],
) -> tuple[list[pa.Table], list[pa.Table]]:
    """The rows that others took out of a table in these versions, and those that they put in."""
    gone, come = list[pa.Table](), list[pa.Table]()
    for version in versions:
        were, are = (all_rows(store, write.table, each, since) for each in (version - 1, version))
        with were as before, are as then:
            went, came = _exchanged(of_part(before), of_part(then))
        gone, come = [*gone, went], [*come, came]
    return gone, come


def with_rows(rows: pa.RecordBatchReader, more: Sequence[pa.Table]) -> pa.RecordBatchReader:
    """The rows, and more behind them, of a table that may have had fewer columns then."""
    wide = (pa.concat_tables([rows.schema.empty_table(), each], promote_options="default") for each in more)
    listed = chain.from_iterable(each.select(rows.schema.names).to_batches() for each in wide)
    return pa.RecordBatchReader.from_batches(rows.schema, chain(rows, listed)) if more else rows


def _exchanged(before: pa.RecordBatchReader, now: pa.RecordBatchReader) -> tuple[pa.Table, pa.Table]:
    """The rows that are gone of a table, and those that have come."""
    listed = ", ".join(map(quote, now.schema.names))
    with connect() as connection:
        for name, side in (("were", before), ("are", now)):
            connection.register("rows", side)
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {listed} FROM rows")
        gone, come = (f"FROM {one} EXCEPT ALL FROM {other}" for one, other in (("were", "are"), ("are", "were")))
        return connection.sql(gone).to_arrow_table(), connection.sql(come).to_arrow_table()
