"""Carries out a swap in a result table: one commit replaces files of batches by others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.transaction import AddAction, RemoveAction

from coset.batches.tables.acceptance import accepted_up_to
from coset.batches.tables.delta import Change, added, buckets_in, carry_out, entry_of, newest_in, path_in
from coset.batches.tables.held import deleted, files_held, held_in
from coset.batches.tables.live_files import LiveFile, identity, live_files, vector_files
from coset.batches.tables.log_copy import TableLog, actions_in
from coset.batches.tables.logs import opened, opened_at
from coset.batches.tables.owners import Owner, application
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.document import digest
from partitioning.documents.store import Store, at_once
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Swap
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact
from partitioning.model.table_parts import Buckets
from spark_jobs.tables.table_schema import folder


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a swap does to a table, by batch: the files that go, with the name of their ledger, and those that come; and
    the columns that go with them if no other file has them."""

    write: PlannedWrite
    gone: dict[int, tuple[str, tuple[Artefact, ...]]]
    come: dict[int, tuple[Artefact, ...]]
    columns: frozenset[str] = frozenset()

    @property
    def overwrites(self) -> bool:
        """Whether all rows of the table go, and not just those of the batches."""
        return not self.write.declared.mode.keeps


def removals(table: str) -> str:
    """The application whose transactions in a table's log say until when, in milliseconds, a file has to be out of it
    to be removed. That is said before the first is removed."""
    return f"{table}:removed"


def taken(path: str, size: int, *, changes: bool) -> RemoveAction:
    """The removal of a file. `changes` says whether it changes the table's rows."""
    return RemoveAction(path, changes, time.time_ns() // 1_000_000, size, {})


def exchange(store: Store, swap: Swap, change: Exchange) -> int:
    """Replace files of batches in one Delta commit, and return its version.

    A table that each batch replaces holds only the last batch. This may be repeated and raced as `commit`. Raises
    Refused if the table lacks files that go, and OutcomeUnknown as `commit`.
    """
    table, write = change.write.declared.table, change.write

    def exchanged(log: TableLog) -> Change:
        if change.overwrites:
            newest = newest_in(log, swap.pipeline, table)
            if newest not in change.come:
                return Change([], "append")
            return Change([added(file, write) for file in change.come[newest] if file.records], "overwrite", takes=True)
        gone = [taken(*file, changes=True) for file in _gone(log, change)]
        come = [added(file, write) for files in change.come.values() for file in files if file.records]
        paths = {file.path for file in gone}
        stay = [file for file in live_files(log) if file.path not in paths] if change.columns else []
        # Others may have filled them, and so may batches since which the pipeline does not write the table any more.
        columns = change.columns.difference(*at_once(partial(_columns, log), stay))
        if not columns & {field.name for field in log.schema().fields}:
            return Change([*gone, *come], "append", takes=bool(gone))
        left = Schema([field for field in log.schema().fields if field.name not in columns])
        return Change([*come], "overwrite", takes=True, columns=left, again=stay)

    return _swapped(store, swap, write, exchanged)


def _columns(log: TableLog, file: LiveFile) -> Sequence[str]:
    """The columns that a file of a table has."""
    uri = f"{log.table_uri.rstrip('/')}/{file.path}"
    with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as there:
        names: list[str] = pq.read_schema(there).names
    return names


def check_held(store: Store, change: Exchange) -> None:
    """Raise Refused with all findings if the table lacks files that would go."""
    if change.overwrites:
        return
    where = folder(store, change.write.declared.table)
    with opened(where) as log:
        if log is not None:
            _gone(log, change)
        elif any(file.records for _, files in change.gone.values() for file in files):
            raise Refused(deleted(where))


def check_kept(store: Store, files: Sequence[Artefact]) -> None:
    """Raise Refused with each file of a table that a compaction removes, as the table has not had it for so long."""
    for table in sorted({file.name for file in files}):
        with opened(folder(store, table)) as log:
            if log is not None:
                _check_kept(log, table, ({"path": path_in(file)} for file in files if file.name == table))


def replace_rows(
    store: Store, swap: Swap, write: PlannedWrite, files: Sequence[Artefact], buckets: Buckets | None
) -> int:
    """Replace all files of an upserted table in one Delta commit, and return its version. Raises as `exchange`."""
    change = Change([added(file, write) for file in files if file.records], "overwrite", takes=True, accepted=-1)
    return _swapped(store, swap, write, lambda _: change.lying(buckets))


def restore_rows(store: Store, swap: Swap, write: PlannedWrite, version: int) -> int:
    """Give an upserted table the files and columns of an earlier version again, and return the new version.

    Raises Refused if such a file was removed since, and as `exchange`.
    """
    table = write.declared.table
    files, columns = check_version(store, table, version)
    with opened_at(folder(store, table), version) as old:
        accepted = accepted_up_to(old, table)
    change = Change([], "overwrite", takes=True, columns=columns, again=files, accepted=accepted)
    return _swapped(store, swap, write, lambda log: change.lying(buckets_in(log, version)))


def pass_over(store: Store, swap: Swap, write: PlannedWrite) -> None:
    """Note a swap in a table without changing it, so that no process carries out an earlier swap there. Raises as
    `exchange`."""
    with opened(folder(store, write.declared.table)) as log:
        if log is None:
            return
    _swapped(store, swap, write, lambda log: Change([], "append", columns=log.schema()))


def version_with(store: Store, swap: Swap, table: str) -> int | None:
    """The version of a table in which a swap was carried out. None if it was not."""
    with opened(folder(store, table)) as log:
        if log is None:
            return None
        version = _version_in(log, swap, table)
        passed = log.transaction_version(_swaps_of(swap, table)) != swap.number
        return None if passed and entry_of(log, _metadata(swap)) is None else version


def check_version(store: Store, table: str, version: int) -> tuple[Sequence[LiveFile], Schema]:
    """The files and columns of a table in a version. Raises Refused with all findings if files were removed since."""
    where = folder(store, table)
    with opened_at(where, version) as old:
        columns = old.schema()
    with opened(where) as log:
        if log is None:
            raise Refused(deleted(where))
        files = live_files(log, version)
        _check_kept(log, table, (file.added for file in files))
    if gone := Files().missing([f"{where}/{path}" for path in (*(file.path for file in files), *vector_files(files))]):
        what, then = "the file was removed since", "restore the file from a backup"
        raise Refused(*(_removed(what, uri, then, table, version) for uri in gone))
    return files, columns


def _check_kept(log: TableLog, table: str, files: Iterable[Mapping[str, Any]]) -> None:
    until, left, gone = log.transaction_version(removals(table)), {identity(file) for file in files}, dict[str, int]()
    for version in range(log.version(), -1, -1) if until is not None else ():
        if not left or (data := log.commit(version)) is None:
            break
        actions = actions_in(data)
        left -= {identity(action["add"]) for action in actions if "add" in action}
        for file in (action["remove"] for action in actions if "remove" in action):
            if identity(file) in left and file["deletionTimestamp"] <= until:
                gone[unquote(file["path"])] = version
            left.discard(identity(file))
    if gone:
        what, then = "the table has not had the file since version {}, and it is removed", "leave what readers see"
        where = log.table_uri.rstrip("/")
        raise Refused(
            *(_removed(what.format(n), f"{where}/{path}", then, table, n) for path, n in sorted(gone.items()))
        )


def _removed(what: str, uri: str, then: str, table: str, version: int) -> Finding:
    return Finding.of(Kind.FILE_GONE, what, uri, then, table=table, version=version, file=uri)


def _swapped(store: Store, swap: Swap, write: PlannedWrite, change_of: Callable[[TableLog], Change]) -> int:
    table = write.declared.table

    def change(log: TableLog) -> Change:
        wanted = change_of(log)
        come = ({"path": action.path} for action in wanted.actions if isinstance(action, AddAction))
        _check_kept(log, table, [*come, *(file.added for file in wanted.again)])
        return wanted

    return carry_out(
        folder(store, table),
        write,
        Owner.of(store, swap.pipeline),
        f"swap {swap.number}",
        (_swaps_of(swap, table), swap.number),
        _metadata(swap),
        lambda log: _version_in(log, swap, table),
        change,
    )


def _version_in(log: TableLog, swap: Swap, table: str) -> int | None:
    newest = log.transaction_version(_swaps_of(swap, table))
    if newest is None or newest < swap.number:
        return None
    entry = entry_of(log, _metadata(swap))
    return int(entry["version"]) if entry else log.version()


def _metadata(swap: Swap) -> dict[str, str]:
    return {"coset.pipeline": swap.pipeline, "coset.swap": str(swap.number), "coset.digest": digest(swap)}


def _swaps_of(swap: Swap, table: str) -> str:
    """The application whose transactions in a table's log are a pipeline's swaps."""
    return application(swap.pipeline, f"{table}:swaps")


def _gone(log: TableLog, change: Exchange) -> list[tuple[str, int]]:
    """The files that go. Raises Refused if the table has neither them nor what they were compacted to."""
    held = held_in(log)
    return [file for batch, left in change.gone.items() for file in files_held(log, held, batch, *left)]
