"""Counts the rows of result tables, by their own logs, before and after a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from coset.batches.tables.logs import Logs, opened, opened_whole
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.artefact import Artefact, Role
from partitioning.model.graph import Mode, Write
from partitioning.model.plan import Plan, PlannedWrite
from spark_jobs.tables.table_schema import RESIDUE, folder


def rows_held(store: Store, writes: Iterable[Write], logs: Logs | None = None) -> dict[str, int]:
    """The number of rows of each existing table."""
    held = dict[str, int]()
    for write in writes:
        with opened(folder(store, write.table), logs) as table:
            if table is not None:
                held[write.table] = sum(_by_partition(table).values())
    return held


def rows_kept(ledger: Ledger, plan: Plan, left: Sequence[Artefact], logs: Logs) -> list[dict[str, object]]:
    """A row for each table that batches do not only append to: its name, and its rows `before` and `after` the batch.

    `asked` says whether the user allowed rows to go, or made the table's step begin anew. A backfill's batch has no
    rows here: its result is compared before it is put in place.
    """
    rows = list[dict[str, object]]()
    asked = {*plan.allowed.named, *(plan.anew if isinstance(plan.anew, tuple) else ())}
    for write in plan.writes() if ledger.original is None else ():
        table = write.declared.table
        if write.declared.mode is Mode.APPEND:
            continue
        files = [file for file in left if (file.role, file.name) == (Role.TABLE, table)]
        with opened(folder(ledger.store, table), logs) as log:
            held = _by_partition(log) if log is not None else Counter[int]()
        before, after = sum(held.values()), _stay(write, held, files) + sum(file.records for file in files)
        rows.append(
            {"table": table, "before": before, "after": after, "asked": bool({table, write.declared.step} & asked)}
        )
    return rows


def rows_left(
    store: Store, write: PlannedWrite, files: Sequence[Artefact]
) -> tuple[int, Callable[[Sequence[str]], Iterator[pa.RecordBatch]]]:
    """How many rows stay of an upserted table beside these files of a batch, and how to read columns of them."""
    where = folder(store, write.declared.table)
    with opened(where) as log:
        count = _stay(write, _by_partition(log), files) if log is not None else 0

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with opened_whole(where) as log:
            if count and log is not None:
                stay = ~pc.field(RESIDUE).isin(sorted(_touched(files)))
                yield from log.to_pyarrow_dataset().scanner(list(columns), filter=stay).to_batches()

    return count, read


def _stay(write: PlannedWrite, held: Counter[int], files: Sequence[Artefact]) -> int:
    """How many of a table's rows the batch leaves in place."""
    if write.anew or write.declared.mode is Mode.REPLACE:
        return 0
    touched = _touched(files)
    return sum(rows for partition, rows in held.items() if partition not in touched)


def _touched(files: Sequence[Artefact]) -> set[int]:
    return {part.partition for file in files for part in file.parts}


def _by_partition(table: DeltaTable) -> Counter[int]:
    """The number of rows of each partition, by the log."""
    rows = Counter[int]()
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        rows[file.get(f"partition.{RESIDUE}") or 0] += file.get("num_records") or 0
    return rows
