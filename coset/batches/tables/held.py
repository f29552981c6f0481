"""Held: finds the files of a result table that hold the rows of a published batch now.

These are the files that the batch wrote, or the file that they were compacted to. If files of several batches were
compacted together, their rows cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from coset.batches.tables.delta import newest_in, path_in
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import RESTORE, Logs, missing, opened
from coset.batches.tables.others import check_untouched, taken_out
from coset.sources.files import Files
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError, Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.model.graph import Write
from partitioning.model.receipt import Artefact
from spark_jobs.tables.table_schema import folder

# Where a table has the files that batches wrote.
BATCHES = "data/plan-"


def compacted_in(batch: int, name: str) -> str:
    """The folder of a table with the compacted file of a batch, of the ledger `name`."""
    return f"{BATCHES}{batch}/compacted-{name}/"


def held_in(log: DeltaTable) -> dict[str, int]:
    """The current files of a table and their sizes."""
    return {file["path"]: file["size_bytes"] for file in pa.table(log.get_add_actions()).to_pylist()}


def files_held(
    log: TableLog, held: Mapping[str, int], batch: int, name: str, files: Sequence[Artefact]
) -> list[tuple[str, int]]:
    """The files of a table with the rows of a batch, and their sizes: those that it wrote, or their compacted file.

    `held` are all files of the table. Raises Refused if it has neither, with all findings: each says by the table's log
    who took a file out.
    """
    if together := [(path, size) for path, size in held.items() if path.startswith(compacted_in(batch, name))]:
        return together
    if gone := [path_in(file) for file in files if file.records and path_in(file) not in held]:
        raise Refused(*_gone(log, gone, pipeline_of(name) or name))
    return [(path_in(file), file.size) for file in files if file.records]


def _gone(log: TableLog, paths: Sequence[str], pipeline: str) -> Iterator[Finding]:
    """Findings for files that a table does not have any more."""
    found = taken_out(log, paths, pipeline)
    for path in paths:
        why, back = found.get(path, ("its log does not say any more what took it out", ""))
        what = f"the table does not have this file any more: {why}"
        then = f"{back}run the pipeline under another name, into another table: this batch's rows cannot be exchanged"
        yield Finding.of(Kind.BACKFILL_TABLE, what, f"{log.table_uri.rstrip('/')}/{path}", then, file=path)


def uris_of(ledger: Ledger, batch: int, write: Write, files: Sequence[Artefact]) -> list[str] | None:
    """The URIs of the files with a batch's rows: the files that it wrote while they exist, else their compacted file.

    None if they are gone, and a later batch has replaced the table's rows. Raises Refused with all findings if no files
    hold just these rows.
    """
    written = [ledger.uri(file.path) for file in files if file.records]
    if not Files().missing(written):
        return written
    where = folder(ledger.store, write.table)
    with opened(where) as log:
        if log is None:
            raise Refused(deleted(where))
        if not write.mode.keeps:
            if not _is_newest(log, ledger, batch, write):
                return None
            paths = list(held_in(log))
        else:
            paths = [path for path, _ in files_held(log, held_in(log), batch, ledger.pipeline, files)]
    there = [f"{where}/{path}" for path in paths]
    refuse(missing(there))
    return there


def not_exchangeable(batches: Sequence[tuple[Ledger, int]]) -> Iterator[Finding]:
    """Findings on batches whose rows a backfill could not exchange. Each is given with the ledger whose rows count."""
    logs, told = Logs(), set[Finding]()
    for ledger, batch in batches:
        plan, verdict = ledger.plan(batch), ledger.verdict(batch)
        assert plan is not None
        assert verdict is not None
        for write in (write.declared for write in plan.writes()):
            try:
                _check(logs, ledger, batch, write, verdict.rows_of(write.table))
            except CosetError as error:
                yield from (finding for finding in error.findings if finding not in told)
                told.update(error.findings)


def _check(logs: Logs, ledger: Ledger, batch: int, write: Write, files: Sequence[Artefact]) -> None:
    where = folder(ledger.store, write.table)
    with opened(where, logs) as log:
        if log is None:
            raise Refused(deleted(where))
        if write.mode.only_adds:
            files_held(log, held_in(log), batch, ledger.pipeline, files)
        elif not write.mode.keeps or _is_newest(log, ledger, batch, write):
            # A swap would write over all rows.
            check_untouched(ledger.store, pipeline_of(ledger.pipeline) or ledger.pipeline, [write], logs)
    if not write.mode.by_key:
        uris_of(ledger, batch, write, files)


def _is_newest(log: TableLog, ledger: Ledger, batch: int, write: Write) -> bool:
    """Whether this batch is the newest in a table, which holds its rows if each batch replaces it."""
    pipeline = ledger.original.pipeline if ledger.original else ledger.pipeline
    return newest_in(log, pipeline, write.table) == batch


def deleted(where: str) -> Finding:
    """The finding on a table that is gone."""
    return Finding.of(Kind.TABLE_BEHIND, "the table is gone", where, RESTORE, table=where)
