"""How many rows result tables have, by their own logs, and how many they would have after a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from coset.batches.tables.logs import Logs, opened
from partitioning.documents.ledger import Ledger
from partitioning.model.artefact import Artefact, Role
from partitioning.model.graph import Mode, Write
from partitioning.model.plan import Plan, PlannedWrite
from spark_jobs.tables.table_schema import RESIDUE, folder


def rows_held(store_root: str, writes: Iterable[Write], logs: Logs | None = None) -> dict[str, int]:
    """The rows of each table that is there."""
    held = dict[str, int]()
    for write in writes:
        with opened(folder(store_root, write.table), logs) as table:
            if table is not None:
                held[write.table] = sum(_by_partition(table).values())
    return held


def rows_kept(ledger: Ledger, plan: Plan, left: Sequence[Artefact]) -> list[dict[str, object]]:
    """Of each table that is not only appended to its name, its rows `before` the batch and `after` it, and whether it
    was `asked` that any may go, or that its step begins anew.

    Those of a backfill have none: what it takes away is compared before it is put in place.
    """
    rows, logs = list[dict[str, object]](), Logs()
    asked = {*plan.allowed.named, *(plan.anew if isinstance(plan.anew, tuple) else ())}
    for write in plan.writes() if ledger.original is None else ():
        table = write.declared.table
        if write.declared.mode is Mode.APPEND:
            continue
        files = [file for file in left if (file.role, file.name) == (Role.TABLE, table)]
        with opened(folder(ledger.store.root, table), logs) as log:
            held = _by_partition(log) if log is not None else Counter[int]()
        before, after = sum(held.values()), _stay(write, held, files) + sum(file.records for file in files)
        rows.append(
            {"table": table, "before": before, "after": after, "asked": bool({table, write.declared.step} & asked)}
        )
    return rows


def _stay(write: PlannedWrite, held: Counter[int], files: Sequence[Artefact]) -> int:
    """How many rows stay that a table has."""
    if write.anew or write.declared.mode is Mode.REPLACE:
        return 0
    touched = {part.partition for file in files for part in file.parts}
    return sum(rows for partition, rows in held.items() if partition not in touched)


def _by_partition(table: DeltaTable) -> Counter[int]:
    """The rows of each partition, as the log counts them."""
    rows = Counter[int]()
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        rows[file.get(f"partition.{RESIDUE}") or 0] += file.get("num_records") or 0
    return rows
