"""The Delta logs of result tables: opens them, creates tables, and checks and adds columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import local

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from coset.batches.tables.live_files import has_vectors, live_files, vector_files
from coset.batches.tables.log_copy import Action, LogCopy, TableLog
from coset.batches.tables.owners import Owner, check_owner
from coset.batches.tables.table_rules import check_rules
from coset.sources.file_columns import columns_of as types_of
from coset.sources.files import Files
from coset.sources.plain_arrays import is_nested
from coset.sources.s3 import storage_options, store_error
from partitioning.commands import BackfillAsking
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import quote
from partitioning.model.plan import PlannedWrite
from partitioning.model.root_names import taken_from_tables
from spark_jobs.tables.table_schema import RESIDUE, columns_of, folder, table_schema

# A log is read from its newest checkpoint on, with a request for each commit since.
CHECKPOINT_EVERY = 20
# A thread keeps so many copies of logs.
_MOST_COPIES = 64

RESTORE = "restore it from a backup"
_LOOK = "run the same command again; if it fails again, restore the table's _delta_log/ as it was"


class Logs:
    """The Delta logs that one piece of work uses, each as it was when it was first asked for, or last committed to."""

    def __init__(self) -> None:
        self._read: dict[str, TableLog] = {}
        self._versions: dict[str, int] = {}

    def table(self, where: str) -> TableLog | None:
        """The table. None if there is none. Raises delta-rs's errors and the store's."""
        if where not in self._read and (table := _copy_of(where).table()) is not None:
            self._took(where, table)
        return self._read.get(where)

    def create(self, where: str, write: PlannedWrite, owner: Owner) -> TableLog:
        """Create a table that belongs to `owner`. Raises delta-rs's errors and the store's."""
        made = _copy_of(where).create(
            log_schema(write),
            description=write.declared.comment or None,
            partition_by=partitioned_by(write),
            configuration={"delta.checkpointInterval": str(CHECKPOINT_EVERY), **owner.properties},
            raise_if_key_not_exists=False,
        )
        return self._took(where, made)

    def push(self, where: str) -> None:
        """Store what was committed to a table of this object. Raises delta-rs's errors and the store's."""
        table = self._read[where]
        table.copy.push(self._versions[where])
        self._took(where, table)

    def amend(self, where: str, change: Callable[[list[Action]], list[Action]]) -> None:
        """Change the actions of what was committed to a table of this object, and store it. Raises as `push`."""
        table, version = self._read[where], self._versions[where] + 1
        table.copy.amend(version, change)
        self.push(where)
        if version % CHECKPOINT_EVERY == 0:
            # delta-rs would have made it of the version as it was before.
            table.create_checkpoint()
            self.push(where)

    def again(self, where: str | None = None) -> None:
        """Look at a log again the next time, or at all of them."""
        for one in [where] if where else list(self._read):
            self._read.pop(one, None)

    def forget(self, where: str) -> None:
        """Copy a log anew the next time."""
        self._read.pop(where, None)
        _copy_of(where).forget()

    def _took(self, where: str, table: TableLog) -> TableLog:
        self._read[where], self._versions[where] = table, table.version()
        return table


class _Copies(local):
    """The copies of a thread: what it commits to one, no other may see before it is stored."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, str], LogCopy] = {}


_COPIES = _Copies()


def _copy_of(where: str) -> LogCopy:
    copies, asked = _COPIES.of, (os.getpid(), where)
    copy = copies.pop(asked, None) or LogCopy(where)
    copies[asked] = copy
    while len(copies) > _MOST_COPIES:
        del copies[next(iter(copies))]
    return copy


@contextmanager
def opened(where: str, logs: Logs | None = None) -> Iterator[TableLog | None]:
    """The log of a table, without its rows, as it is now. None if there is none.

    Errors inside the block are raised as Coset's.
    """
    try:
        yield (logs or Logs()).table(where)
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


@contextmanager
def opened_whole(where: str) -> Iterator[DeltaTable | None]:
    """The table as it is now, to read its rows or to commit to it by delta-rs alone. None if there is none.

    Errors inside the block are raised as Coset's: Refused with all files that are missing, if any are. One of DuckDB's
    about anything else is left as it is.
    """
    table = None
    try:
        with suppress(TableNotFoundError):
            table = DeltaTable(where, storage_options=storage_options())
        yield table
    except (DeltaError, OSError, duckdb.Error) as error:
        if table is not None and (gone := missing_of(table, where)):
            raise Refused(*gone) from error
        if isinstance(error, duckdb.Error):
            raise
        raise log_error(error, where) from error


def missing_of(table: DeltaTable, where: str) -> list[Finding]:
    """Findings on files that the newest version of a table has and that do not exist.

    Raises Coset's errors if that cannot be found out.
    """
    try:
        # Somebody may have compacted it meanwhile.
        table.update_incremental()
        paths = pa.table(table.get_add_actions())["path"].to_pylist()
        if has_vectors(table):
            with opened(where) as log:
                paths += sorted(vector_files(live_files(log))) if log is not None else []
        return missing([f"{where}/{path}" for path in paths])
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


def missing(uris: Sequence[str]) -> list[Finding]:
    """Findings on those of these files of a table that do not exist."""
    return [Finding.of(Kind.FILE_GONE, "the file is missing", uri, RESTORE, file=uri) for uri in Files().missing(uris)]


def try_log(where: str) -> None:
    """Make a table without rows, and commit to its log once more. Raises Coset's errors if its store cannot do it."""
    try:
        made = DeltaTable.create(
            where, Schema.from_arrow(pa.schema([("it", pa.int64())])), storage_options=storage_options()
        )
        made.alter.set_table_description("to be removed")
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


@contextmanager
def opened_there(store: Store, table: str) -> Iterator[DeltaTable]:
    """The table as it is now, as `opened_whole` gives it. Raises Refused if there is none."""
    where = folder(store, table)
    with opened_whole(where) as log:
        if log is None:
            raise Refused(unknown(where, table))
        yield log


def unknown(where: str, table: str) -> Finding:
    """The finding that a table that somebody named is not there."""
    then = "correct the name, or --store"
    return Finding.of(Kind.TABLE_UNKNOWN, "there is no such table", where, then, table=table)


@contextmanager
def opened_at(where: str, version: int) -> Iterator[DeltaTable]:
    """The table as it was in a version. Errors inside the block are raised as Coset's."""
    try:
        yield DeltaTable(where, version, storage_options=storage_options())
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


def partitioned_by(write: PlannedWrite) -> list[str]:
    return [RESIDUE] if write.declared.mode.by_key else []


def check_held_columns(table: DeltaTable, write: PlannedWrite, pipeline: str) -> None:
    """Raise Refused with all findings if the table has columns that the plan lacks or has with another type.

    A table that each batch replaces may have any columns.
    """
    where, mode = table.table_uri, write.declared.mode
    if table.metadata().partition_columns != partitioned_by(write):
        was = "not upserted" if mode.by_key else "upserted"
        what = f"the table was {was} before: it is partitioned in another way"
        then = "keep the mode, or write to a table of another name"
        raise Refused.of(Kind.TABLE_MODE, what, where, then, table=write.declared.table, mode=mode)
    if not mode.keeps:
        return
    wanted = {field.name: field.type for field in columns_of(write)}
    held = _held_columns(table)
    missing, new = held.keys() - wanted.keys(), set(key_columns(write.declared.key)) - held.keys()
    if mode.by_key and missing and new:
        gone = " and ".join(map(repr, sorted(missing)))
        what = f"the table has no column {' and '.join(map(repr, sorted(new)))}, its key now; the plan has no {gone}"
        then = "name the key as it was; or write to a table of another name, and make it of all records: "
        whole = BackfillAsking(pipeline, 0, cascade=True)
        raise Refused.of(Kind.TABLE_COLUMNS, what, where, (then, whole), name=sorted(missing), key=sorted(new))
    findings = [
        _other_column(name, kind, wanted.get(name), where) for name, kind in held.items() if kind != wanted.get(name)
    ]
    refuse(findings)


def _other_column(name: str, kind: pa.DataType, wanted: pa.DataType | None, where: str) -> Finding:
    """What to do about a column that has this type in the table, and another, or none, in the plan."""
    held, named = _in_sql(kind), quote(name)
    if wanted is None:
        now, then = (
            "missing",
            f"keep it, as `NULL::{held} AS {named}` if nothing has it any more, or write to another table",
        )
    elif is_nested(kind) and is_nested(wanted):
        # A cast would make null of a part that has another name.
        now = _in_sql(wanted)
        made = "name its parts as they are there in the step that the table is written from"
        then = f"{made}, or write to a table of another name"
    else:
        now = _in_sql(wanted)
        cast = f"cast it in the step that the table is written from, with `{named}::{held} AS {named}`"
        # Batches that are run again must give the other table this type too.
        then = f"{cast}, or if that cannot hold its values, cast it to {now} and write to a table of another name"
    what = f"column {name!r} is {held} in the table, {now} in the plan"
    return Finding.of(Kind.TABLE_COLUMNS, what, where, then, name=name, kind=held)


def _in_sql(kind: pa.DataType) -> str:
    return types_of(pa.schema([("it", kind)])).columns[0].type


def _held_columns(table: DeltaTable) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pa.schema(table.schema().to_arrow())}


def add_columns(table: DeltaTable, write: PlannedWrite) -> bool:
    """Add the columns that the table lacks, which its rows have as null. Returns whether it lacked any."""
    held = _held_columns(table)
    added = [field for field in log_schema(write).fields if field.name not in held]
    if added:
        table.alter.add_columns(added)
    return bool(added)


def log_schema(write: PlannedWrite, there: DeltaTable | None = None) -> Schema:
    """The columns of a table with what is said of them, by the pipeline or by the log that is there."""
    held = {field.name: field.metadata for field in there.schema().fields} if there else {}
    said = {each.column: {"comment": each.text} for each in write.declared.comments}
    columns = (
        field.with_metadata({**held.get(field.name, {}), **said.get(field.name, {})}) for field in columns_of(write)
    )
    return Schema.from_arrow(pa.schema(list(columns)))


def comment_on(table: DeltaTable, write: PlannedWrite) -> bool:
    """Say of the table and its columns what the pipeline says of them. Returns whether the log said something else."""
    said = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    new = [each for each in write.declared.comments if each.column in said and said[each.column] != each.text]
    described = write.declared.comment in ("", table.metadata().description)
    if not described:
        table.alter.set_table_description(write.declared.comment)
    for each in new:
        table.alter.set_column_metadata(each.column, {"comment": each.text})
    return bool(new) or not described


def _is_storable(kind: pa.DataType) -> bool:
    """Whether a column of this type has the same type when it is read from a Delta table."""
    if _has_nanoseconds(kind):
        return False  # delta-rs stores them as a type that other readers do not know
    try:
        back = pa.schema(Schema.from_arrow(pa.schema([pa.field("it", kind)])).to_arrow())
    except Exception:  # delta-rs raises the base class here
        return False
    return bool(back.field("it").type == kind)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return kind == pa.timestamp("ns") or any(map(_has_nanoseconds, parts))


def check_storable(write: PlannedWrite) -> None:
    """Raise Refused with all findings for columns with types that a Delta table cannot hold, and for comments on
    columns that it does not have."""
    findings = [
        Finding.of(
            Kind.TABLE_COLUMNS,
            f"column {column.name!r} is {column.type}, which a Delta table cannot hold",
            f"table {write.declared.table!r}",
            "cast it in the step that the table is written from",
            column=column.name,
            type=column.type,
        )
        for column, kind in zip(write.columns, table_schema(write).types, strict=False)
        if not _is_storable(kind)
    ]
    there = columns_of(write).names
    findings += [
        Finding.of(
            Kind.TABLE_COLUMNS,
            f"there is no column {each.column!r} to say {each.text!r} of",
            f"table {write.declared.table!r}",
            f"name one of {', '.join(there)}",
            column=each.column,
        )
        for each in write.declared.comments
        if each.column not in there
    ]
    refuse(findings)


def check_table(store: Store, write: PlannedWrite, pipeline: str, logs: Logs | None = None) -> None:
    """Raise Refused with all findings if a table belongs to another pipeline, has other columns, or has rules that a
    batch would break.

    A table that does not exist passes, unless the store has something of its own there. This is checked before a batch
    runs, which would be in vain otherwise.
    """
    with opened(folder(store, write.declared.table), logs) as table:
        if table is None:
            if taken := taken_from_tables(write.declared.table):
                raise Refused(taken)
        else:
            # The log was read first: a store has its id before it has a table.
            check_owner(table, write.declared.table, Owner.here(store, pipeline))
            check_rules(table, takes=not write.declared.mode.only_adds)
            check_held_columns(table, write, pipeline)


def check_exchangeable(store: Store, name: str, owner: Owner) -> None:
    """Raise Refused if a table belongs to another pipeline or its rules forbid removing rows. A missing one passes."""
    with opened(folder(store, name)) as table:
        if table is not None:
            check_owner(table, name, owner)
            check_rules(table, takes=True)


def log_error(error: Exception, where: str) -> CosetError:
    if isinstance(error, FileNotFoundError):
        return store_error(error, "a file of the table is missing", where, RESTORE)
    return store_error(error, "the Delta log cannot be read or written", where, _LOOK)
