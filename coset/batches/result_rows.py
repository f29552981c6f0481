"""Rows by their files: those that an attempt would publish to tables, and records that were set aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.sources.files import Files
from coset.sources.formats.parquet import open_parquet
from coset.sources.reader import rows_in
from coset.sources.rows import Rows
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.figures import figures_of
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.receipt import Artefact, Role
from spark_jobs.tables.table_schema import table_schema

_BATCH_ROWS = 1 << 16
# A file of at most so many bytes is read by one request.
_SMALL = 1 << 20


def result_rows(attempt: Attempt) -> Mapping[str, Rows]:
    """The rows by table. They are read from the store when they are needed.

    Raises Refused as `Attempt.artefacts`. Reading raises Refused or Unreachable if a file cannot be read.
    """
    rows = {}
    for write in attempt.plan.writes():
        if write.declared.expectations:
            table = write.declared.table
            files = table_files(attempt, table)
            rows[table] = rows_of_files(attempt.ledger, write, files)
    return rows


def rows_of_files(ledger: Ledger, write: PlannedWrite, files: Sequence[Artefact]) -> Rows:
    """The rows in these files of a result table. Reading raises as it does for `result_rows`."""
    read = partial(_read, ledger, files)
    return Rows(table_schema(write), sum(file.records for file in files), read)


def table_files(attempt: Attempt, table: str) -> list[Artefact]:
    """The files that an attempt left for a result table, in the order in which their rows are judged.

    Raises Refused as `Attempt.artefacts`.
    """
    of_table = (file for file in attempt.artefacts if (file.role, file.name) == (Role.TABLE, table))
    return sorted(of_table, key=lambda file: _in_its_folder(file.path))


def _in_its_folder(path: str) -> str:
    """The path below the folder of a group's run, which chance names: another attempt has its rows in the same order.

    >>> _in_its_folder("tables/spent/data/plan-0/attempt-0-2756b84f/orders-2.parquet")
    'orders-2.parquet'
    """
    return path.partition("/attempt-")[2].partition("/")[2]


def _read(ledger: Ledger, files: Sequence[Artefact], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    there = Files()
    for file in files:
        uri = ledger.uri(file.path)
        with (
            reaching("the file cannot be read", uri, AGAIN),
            there.whole(uri, file.size, file.etag, _SMALL) or there.open(uri) as source,
        ):
            yield from open_parquet(source).iter_batches(_BATCH_ROWS, columns=list(columns))


def count_aside(ledger: Ledger, plan: Plan) -> int:
    """How many records a published batch set aside. Its receipts are read only if there are any."""
    attempt = Attempt.published(ledger, plan)
    if attempt is None or all(file.role is not Role.SET_ASIDE for file in attempt.artefacts):
        return 0
    return figures_of(plan, tuple(attempt.receipts.values())).set_aside


def set_aside_in(ledger: Ledger, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """The records that a batch set aside, each once, by stream, partition and offset: of the attempt that is published,
    or of the newest that has run. `SET_ASIDE_COLUMNS` has the columns.

    Raises Refused if a file is gone or damaged.
    """
    newest = ledger.attempt(plan.batch)
    tried = (Attempt(ledger, plan, number) for number in range(newest, -1, -1))
    attempt = Attempt.published(ledger, plan) or next((each for each in tried if not each.missing), None)
    found: dict[tuple[str, int, int], Mapping[str, Any]] = {}
    files = attempt.artefacts if attempt is not None else ()
    for file in (file for file in files if file.role is Role.SET_ASIDE):
        for row in _rows(ledger, file):
            # Several stages may read a stream, and each sets the same aside.
            found.setdefault((row["stream"], row["partition"], row["offset"]), row)
    yield from (found[place] for place in sorted(found))


def _rows(ledger: Ledger, file: Artefact) -> list[dict[str, Any]]:
    data, where = ledger.store.get(file.path), ledger.uri(file.path)
    if data is None:
        what, then = "the records that were set aside are gone", "restore the file from a backup"
        raise Refused.of(Kind.TASK_FILES, what, where, then, file=file.path)
    with reaching("the file cannot be read", where, AGAIN):
        return rows_in(data)
