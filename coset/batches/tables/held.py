"""Held: in which files of its result tables the rows of a published batch lie now, if they can be told apart.

They lie as they were written, or as they were compacted, a file for each batch. Who puts the files of several batches
together makes one of their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from coset.batches.tables.delta import newest_in, path_in
from coset.batches.tables.logs import Logs, opened
from coset.sources.files import Files
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact
from partitioning.model.graph import Mode, Write
from spark_jobs.tables.table_schema import folder

_RESTORE = "restore it from a backup"


def compacted_in(batch: int, name: str) -> str:
    """Where a table has what a batch's files of a ledger were put together to."""
    return f"data/plan-{batch}/compacted-{name}/"


def held_in(log: DeltaTable) -> dict[str, int]:
    """The files that a table has now, and their sizes."""
    return {file["path"]: file["size_bytes"] for file in pa.table(log.get_add_actions()).to_pylist()}


def files_held(
    where: str, held: Mapping[str, int], batch: int, name: str, files: Sequence[Artefact]
) -> list[tuple[str, int]]:
    """The files of a table with the rows of a batch, and their sizes: those that it wrote, or what these became.

    `held` are all that the table has. Raises Refused, with all findings, if it has neither.
    """
    if together := [(path, size) for path, size in held.items() if path.startswith(compacted_in(batch, name))]:
        return together
    findings = [
        Finding(
            Kind.BACKFILL_TABLE,
            "the table does not have this file any more: it was put together with others",
            f"{where}/{path_in(file)}",
            "its batch's rows cannot be exchanged: run the pipeline under another name, into a table of its own",
            about(file=path_in(file)),
        )
        for file in files
        if file.records and path_in(file) not in held
    ]
    if findings:
        raise Refused(*findings)
    return [(path_in(file), file.size) for file in files if file.records]


def uris_of(ledger: Ledger, batch: int, write: Write, files: Sequence[Artefact]) -> list[str] | None:
    """Where the rows of a batch lie in a table: in the files that it wrote, as long as they are there, or in what these
    became; None of a replaced table if they are gone, and nobody sees them.

    Raises Refused, with all findings, if they lie nowhere by themselves.
    """
    written = [ledger.uri(file.path) for file in files if file.records]
    if not Files().missing(written):
        return written
    where = folder(ledger.store.root, write.table)
    with opened(where) as log:
        if log is None:
            raise Refused(deleted(where))
        if write.mode is Mode.REPLACE:
            if not _is_newest(log, ledger, batch, write):
                return None
            paths = list(held_in(log))
        else:
            paths = [path for path, _ in files_held(where, held_in(log), batch, ledger.pipeline, files)]
    there = [f"{where}/{path}" for path in paths]
    if gone := Files().missing(there):
        raise Refused(*(Finding(Kind.FILE_GONE, "the file is missing", uri, _RESTORE, about(file=uri)) for uri in gone))
    return there


def not_exchangeable(batches: Sequence[tuple[Ledger, int]]) -> Iterator[Finding]:
    """Why rows of these batches, each in the ledger whose rows count, could not be exchanged if they were run again."""
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
    where = folder(ledger.store.root, write.table)
    with opened(where, logs) as log:
        if log is None:
            raise Refused(deleted(where))
        if write.mode is Mode.APPEND:
            files_held(where, held_in(log), batch, ledger.pipeline, files)
    if write.mode is not Mode.UPSERT:
        uris_of(ledger, batch, write, files)


def _is_newest(log: DeltaTable, ledger: Ledger, batch: int, write: Write) -> bool:
    """Whether a replaced table has the rows of this batch."""
    pipeline = ledger.original.pipeline if ledger.original else ledger.pipeline
    return newest_in(log, pipeline, write.table) == batch


def deleted(where: str) -> Finding:
    """That a table is gone."""
    return Finding(Kind.TABLE_BEHIND, "the table is not there any more", where, _RESTORE, about(table=where))
