"""Result tables as Delta has them: whether they are there, made, and their columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from coset.batches.tables.owners import Owner, check_owner
from coset.batches.tables.table_rules import check_rules
from coset.sources.s3 import storage_options, store_error
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import Mode
from partitioning.model.plan import PlannedWrite
from spark_jobs.tables.table_schema import RESIDUE, columns_of, folder, table_schema

# A log is read from its newest checkpoint on: one request a commit since then, each time.
CHECKPOINT_EVERY = 20

_LOOK = "run the same command again; if it fails again, restore the table's _delta_log/ as it was"


class Logs:
    """The Delta logs that one piece of work looks at: each is read whole once, then what has come to it since.

    It is for work that is done at once: a log that is rolled back meanwhile is not seen to be.
    """

    def __init__(self) -> None:
        self._read: dict[str, DeltaTable] = {}

    def table(self, where: str) -> DeltaTable | None:
        """The table as it is now, if there is one. Raises what delta-rs raises."""
        if (read := self._read.get(where)) is not None:
            read.update_incremental()
            return read
        try:
            self._read[where] = DeltaTable(where, storage_options=storage_options())
        except TableNotFoundError:
            return None
        return self._read[where]

    def create(self, where: str, write: PlannedWrite, owner: Owner) -> DeltaTable:
        """A new table, which is this pipeline's. Raises what delta-rs raises."""
        self._read[where] = DeltaTable.create(
            where,
            Schema.from_arrow(columns_of(write)),
            partition_by=partitioned_by(write),
            storage_options=storage_options(),
            configuration={"delta.checkpointInterval": str(CHECKPOINT_EVERY), **owner.properties},
            raise_if_key_not_exists=False,
            # A retry would put a second CREATE after the one that came first.
            commit_properties=CommitProperties(max_commit_retries=0),
        )
        return self._read[where]

    def forget(self, where: str) -> None:
        """Read a log whole when it is looked at again."""
        self._read.pop(where, None)


@contextmanager
def opened(where: str, logs: Logs | None = None) -> Iterator[DeltaTable | None]:
    """The table as it is now, if there is one; what goes wrong is raised as Coset's errors."""
    try:
        yield (logs or Logs()).table(where)
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


@contextmanager
def opened_there(store_root: str, table: str) -> Iterator[DeltaTable]:
    """A table that somebody names, as it is now. Raises Refused if there is none."""
    where = folder(store_root, table)
    with opened(where) as log:
        if log is None:
            then = "correct the name, or --store"
            raise Refused(Finding(Kind.TABLE_UNKNOWN, "there is no such table", where, then, about(table=table)))
        yield log


@contextmanager
def opened_at(where: str, version: int) -> Iterator[DeltaTable]:
    """The table as it was in a version; what goes wrong is raised as Coset's errors."""
    try:
        yield DeltaTable(where, version, storage_options=storage_options())
    except (DeltaError, OSError) as error:
        raise log_error(error, where) from error


def partitioned_by(write: PlannedWrite) -> list[str]:
    return [RESIDUE] if write.declared.mode is Mode.UPSERT else []


def check_held_columns(table: DeltaTable, write: PlannedWrite) -> None:
    """Raise Refused, with all findings, if the table has columns that the plan has not, or has of another type.

    What is written anew as a whole may have any.
    """
    where, mode = table.table_uri, write.declared.mode
    if table.metadata().partition_columns != partitioned_by(write):
        what = f"the table was not written in mode {mode.value!r} before: its rows lie otherwise"
        raise Refused(
            Finding(
                Kind.TABLE_MODE,
                what,
                where,
                "keep the mode, or write to a table of another name",
                about(table=write.declared.table, mode=mode),
            )
        )
    if mode is Mode.REPLACE:
        return
    wanted = {field.name: field.type for field in columns_of(write)}
    findings = [
        Finding(
            Kind.TABLE_COLUMNS,
            f"column {name!r} is {kind} in the table, {wanted.get(name, 'missing')} in the plan",
            where,
            "keep the columns that there are, or write to a table of another name",
            about(name=name, kind=kind),
        )
        for name, kind in _held_columns(table).items()
        if kind != wanted.get(name)
    ]
    if findings:
        raise Refused(*findings)


def _held_columns(table: DeltaTable) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pa.schema(table.schema().to_arrow())}


def add_columns(table: DeltaTable, write: PlannedWrite) -> bool:
    """Give the table the columns that it lacks, of which its rows have none; whether it lacked any."""
    held = _held_columns(table)
    added = [field for field in Schema.from_arrow(columns_of(write)).fields if field.name not in held]
    if added:
        table.alter.add_columns(added)
    return bool(added)


def _is_storable(kind: pa.DataType) -> bool:
    """Whether a Delta table gives back what was written to it."""
    if kind == pa.timestamp("ns"):
        return False  # delta-rs has a type of its own for it, which other readers do not know
    try:
        back = pa.schema(Schema.from_arrow(pa.schema([pa.field("it", kind)])).to_arrow())
    except Exception:  # delta-rs raises the base class here
        return False
    return bool(back.field("it").type == kind)


def check_storable(write: PlannedWrite) -> None:
    """Raise Refused, with all findings, for columns of types that a Delta table cannot hold."""
    findings = [
        Finding(
            Kind.TABLE_COLUMNS,
            f"column {column.name!r} is {column.type}, which a Delta table cannot hold",
            f"table {write.declared.table!r}",
            "cast it in the step that the table is written from",
            about(column=column.name, type=column.type),
        )
        for column, kind in zip(write.columns, table_schema(write).types, strict=False)
        if not _is_storable(kind)
    ]
    if findings:
        raise Refused(*findings)


def check_table(store_root: str, write: PlannedWrite, owner: Owner, logs: Logs | None = None) -> None:
    """Raise Refused, with all findings, if there is a table and it is another's, has other columns, or has
    rules that a batch would break.

    It keeps those that it has: a batch of others would be run and judged in vain.
    """
    with opened(folder(store_root, write.declared.table), logs) as table:
        if table is not None:
            check_owner(table, write.declared.table, owner)
            check_rules(table, takes=write.declared.mode is not Mode.APPEND)
            check_held_columns(table, write)


def check_exchangeable(store_root: str, name: str, owner: Owner) -> None:
    """Raise Refused if there is a table of that name, and it is another's, or no rows may be taken from it."""
    with opened(folder(store_root, name)) as table:
        if table is not None:
            check_owner(table, name, owner)
            check_rules(table, takes=True)


def log_error(error: Exception, where: str) -> CosetError:
    return store_error(error, "the Delta log cannot be read or written", where, _LOOK)
