"""Iceberg tables: result tables in a catalogue, for the engines that look there.

The Delta log decides what a table is. Its Iceberg table has the same files, and follows it: one snapshot takes it from
the version that it followed last to that of now, whatever was done between. A snapshot is the difference between two
lists of files, and counts only upon the snapshot that was read. A process that loses a race, or an answer, looks again:
nothing is added twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

import pyarrow as pa

from coset.batches.tables.delta import newest_in
from coset.batches.tables.live_files import live_files
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import opened
from coset.sources.iceberg.named_catalogue import catalogue, catalogue_errors, is_clients, is_refused, text_of
from coset.sources.iceberg.snapshots import PIPELINE
from coset.sources.s3 import iceberg_options
from partitioning.commands import Iceberg, Repeat
from partitioning.documents.document import canonical, digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, OutcomeUnknown, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import PlannedWrite
from partitioning.model.sources import NAMESPACE
from spark_jobs.tables.table_schema import RESIDUE, folder, table_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

# The variable with the catalogue, by its name in PyIceberg's configuration, and the namespace: `prod.analytics`.
ASKED = "COSET_ICEBERG"
_TRIES = 5
# What an Iceberg table says of the Delta table that it follows: its folder and id, and of a snapshot the version.
_FOLDER, _ID, _VERSION = "coset.folder", "coset.id", "coset.version"
_NAMES = "schema.name-mapping.default"
_FORMAT = 2
_PROPERTIES = {
    "format-version": str(_FORMAT),
    # `coset compact` removes files, and keeps those that time travel and backfills need.
    "gc.enabled": "false",
    "commit.manifest-merge.enabled": "true",
    # Each commit reads all manifests, some of them twice.
    "commit.manifest.min-count-to-merge": "2",
    "write.metadata.delete-after-commit.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of a catalogue, by its name in PyIceberg's configuration."""

    catalogue: str
    name: str

    def named(self, table: str) -> str:
        return f"{self.catalogue}.{self.name}.{table}"


def asked() -> Namespace | None:
    """The place that the environment names. None if it names none. Raises Refused if it cannot be one."""
    said = os.environ.get(ASKED, "")
    if not said:
        return None
    if found := NAMESPACE.fullmatch(said):
        return Namespace(*found.groups())
    then = "write CATALOGUE.NAMESPACE, such as prod.analytics, with a catalogue of PyIceberg's configuration"
    raise Refused.of(Kind.SETTING, f"iceberg, or {ASKED}, cannot be {said!r}", "environment", then, said=said)


def check_followable(write: PlannedWrite) -> None:
    """Raise Refused if no Iceberg table could follow a table, and the environment asks for one. Raises as `asked`, and
    ModuleNotFoundError without the extra."""
    if asked() is None:
        return
    table = write.declared.table
    try:
        _schema(table_schema(write))
    except ValueError as error:
        what, then = f"an Iceberg table cannot have its columns: {error}", "name them otherwise, with AS"
        raise Refused.of(Kind.TABLE_COLUMNS, what, f"table {table!r}", then, table=table) from error


def follow(store: Store, pipeline: str) -> tuple[str, ...]:
    """Take the Iceberg tables of a pipeline to the versions of its tables. Returns the names of those that it took
    there; none if the environment asks for none.

    This may be repeated and raced. Raises Refused, with all findings, if an Iceberg table is not one that follows this
    table, Unreachable if the catalogue does not answer, and OutcomeUnknown if it did not say whether it has a snapshot.
    """
    if (place := asked()) is None or (published := Ledger(store, pipeline).standing().published) is None:
        return ()
    findings, taken = list[Finding](), list[str]()
    with catalogue_errors(place.catalogue, Iceberg(pipeline)):
        known = catalogue(place.catalogue)
    for name in sorted(write.declared.table for write in published.writes()):
        try:
            if _Follower(store, pipeline, known, place, name).follow():
                taken.append(place.named(name))
        except Refused as refusal:
            findings += refusal.findings
    if findings:
        raise Refused(*findings)
    return tuple(taken)


def try_place() -> str | None:
    """Make a table where the environment asks for Iceberg tables, and remove it. Returns the place; None if it asks for
    none. Raises as `follow`."""
    if (place := asked()) is None:
        return None
    table = f"{place.name}.doctor-{uuid4().hex}"
    with catalogue_errors(place.catalogue, Repeat()):
        known = catalogue(place.catalogue)
        _make_namespace(known, place)
        known.create_table(table, pa.schema([("k", pa.string())]))
        try:
            known.purge_table(table)
        except NotImplementedError:
            known.drop_table(table)
    return f"{place.catalogue}.{place.name}"


def _make_namespace(known: Catalog, place: Namespace) -> None:
    """Make a namespace, and those that it is in, unless it is there: who may make tables may not make namespaces."""
    levels = place.name.split(".")
    try:
        if not known.namespace_exists(place.name):
            for level in range(len(levels)):
                known.create_namespace_if_not_exists(tuple(levels[: level + 1]))
    except ValueError as error:
        what = f"the catalogue {place.catalogue} cannot have the namespace {place.name}: {error}"
        raise Refused.of(Kind.SETTING, what, "environment", "name one without a dot", namespace=place.name) from error


class _Follower:
    """Takes one Iceberg table to the version of its Delta table."""

    def __init__(self, store: Store, pipeline: str, catalogue: Catalog, place: Namespace, name: str) -> None:
        self._ledger = Ledger(store, pipeline)
        self._pipeline = pipeline
        self._catalogue = catalogue
        self._place = place
        self._name = name
        self._folder = folder(store, name)
        self._identifier = f"{place.name}.{name}"
        self._where = place.named(name)

    def follow(self) -> bool:
        """Make one snapshot of what is new. Returns whether there was anything."""
        for _ in range(_TRIES):
            # The log is read after the table, so it is not behind what the table follows.
            with catalogue_errors(self._where, Iceberg(self._pipeline)):
                table = self._table()
            with opened(self._folder) as log, catalogue_errors(self._where, Iceberg(self._pipeline)):
                if log is None:
                    return False
                try:
                    return self._commit(log, self._checked(log, table) if table else self._made(log))
                except _Unsure as lost:
                    error = lost
        if type(error.__cause__).__name__ == "TableAlreadyExistsError":
            self._refuse(f"something else in the catalogue has its name: {error}", "name another namespace; then ")
        what = f"after {_TRIES} tries it is not known whether the table follows: {error}"
        raise OutcomeUnknown.of(Kind.ICEBERG_UNREACHABLE, what, self._where, Iceberg(self._pipeline), table=self._name)

    def _made(self, log: TableLog) -> Table:
        _make_namespace(self._catalogue, self._place)
        said = {"comment": text} if (text := log.metadata().description) else {}
        with _changing():
            return self._catalogue.create_table(
                self._identifier, _columns(log), properties=_PROPERTIES | self._mine(log) | said
            )

    def _mine(self, log: TableLog) -> dict[str, str]:
        return {_FOLDER: self._folder, _ID: str(log.metadata().id)}

    def _table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415  an extra

        try:
            return self._catalogue.load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _checked(self, log: TableLog, table: Table) -> Table:
        """The Iceberg table. Raises Refused if it does not follow this table."""
        mine = self._mine(log)
        if (theirs := {key: table.properties.get(key) for key in mine}) != mine:
            follows = f"follows {theirs[_FOLDER]}" if theirs[_FOLDER] else "is not one that Coset made"
            if theirs[_FOLDER] == mine[_FOLDER]:
                follows = "follows a table that was there before"
            what = f"the table in the catalogue {follows}, and not {mine[_FOLDER]}"
            self._refuse(what, "name another namespace; or drop the table there, without its files, then ")
        if table.metadata.format_version != _FORMAT or not table.spec().is_unpartitioned():
            what = "somebody else gave the Iceberg table partitions, or another format"
            self._refuse(what, "drop the table there, without its files, then ")
        newest = table.current_snapshot()
        if newest and (newest.summary is None or _VERSION not in newest.summary.additional_properties):
            what = f"snapshot {newest.snapshot_id} of the Iceberg table is not Coset's: somebody else wrote to it"
            self._refuse(what, "roll it back to the snapshot before; or drop the table there, without its files, then ")
        return table

    def _refuse(self, what: str, then: str) -> NoReturn:
        what += "; the table itself has all that was published"
        raise Refused.of(Kind.ICEBERG_TABLE, what, self._where, (then, Iceberg(self._pipeline)), table=self._name)

    def _commit(self, log: TableLog, table: Table) -> bool:
        from pyiceberg.io import load_file_io  # noqa: PLC0415  an extra

        from coset.batches.tables.position_deletes import Overwrite, PositionDeletes  # noqa: PLC0415  an extra

        files, tasks = live_files(log), list(table.scan().plan_files())
        there = {f"{self._folder}/{file.path}" for file in files}
        held = {task.file.file_path: task.file for task in tasks}
        deletes = PositionDeletes(self._folder, files)
        # The catalogue may grant access to its own folder, which has none of these files.
        io = load_file_io(iceberg_options(), self._folder)
        gone, come = held.keys() - there, sorted(there - held.keys())
        appends = not gone and deletes.are_of(tasks)
        table.catalog = cast("Catalog", _Once(self._catalogue))
        with table.transaction() as transaction:
            if _NAMES not in table.properties:
                # Files have no ids of columns. PyIceberg keeps it when columns change.
                transaction.set_properties({_NAMES: table.schema().name_mapping.model_dump_json()})
            evolved = _evolve(transaction, _columns(log))
            if table.current_snapshot() and appends and not come:
                return evolved
            said, metadata = self._said(log), transaction.table_metadata
            appending = transaction.update_snapshot(snapshot_properties=said).merge_append()
            with appending if appends else Overwrite(transaction, deletes, said) as change:
                for path in sorted(gone):
                    change.delete_data_file(held[path])
                for path in come:
                    change.append_data_file(_data_file(io, metadata, path))
        return True

    def _said(self, log: TableLog) -> dict[str, str]:
        """What a snapshot says of itself: the version, its newest batch, and the offsets up to which it counts."""
        batch = newest_in(log, self._pipeline, self._name)
        plan = None if batch is None else self._ledger.plan(batch)
        said = {_VERSION: str(log.version()), PIPELINE: self._pipeline}
        if plan is None:
            return said
        ends = {f"{read.name}-{end.partition}": end.end for read in plan.ends.streams for end in read.ends}
        return said | {
            "coset.batch": str(plan.batch),
            "coset.digest": digest(plan),
            "coset.offsets": canonical(ends).decode(),
        }


def _data_file(io: FileIO, metadata: TableMetadata, path: str) -> DataFile:
    """A file, with the least and greatest value of each column where PyIceberg can tell them."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file  # noqa: PLC0415  an extra

    try:
        return parquet_file_to_data_file(io, metadata, path)
    except OverflowError:
        # Of a time that Python does not know, such as infinity.
        counted = metadata.properties | {"write.metadata.metrics.default": "counts"}
        return parquet_file_to_data_file(io, metadata.model_copy(update={"properties": counted}), path)


def _columns(log: TableLog) -> pa.Schema:
    """The columns of a table, with what is said of them."""
    fields = pa.schema(log.schema().to_arrow())
    said = {field.name: field.metadata.get("comment") for field in log.schema().fields}
    return pa.schema(
        field.with_metadata({"doc": said[field.name]} if said[field.name] else None)
        for field in fields
        if field.name != RESIDUE
    )


def _schema(columns: pa.Schema) -> Schema:
    """Columns as Iceberg has them. Raises ValueError if it cannot."""
    from pyiceberg.catalog import Catalog  # noqa: PLC0415  an extra

    return Catalog._convert_schema_if_needed(columns)


def _evolve(transaction: Transaction, columns: pa.Schema) -> bool:
    """Give an Iceberg table the columns of its table, and say whether it had others. One that has another type there is
    another column."""
    wanted = {field.name: field for field in _schema(columns).fields}
    held = {field.name: field for field in transaction.table_metadata.schema().fields}
    other = [name for name in held if name in wanted and _type(held[name]) != _type(wanted[name])]
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in (*other, *(held.keys() - wanted.keys())):
            update.delete_column((name,))
        for name, field in wanted.items():
            if name in other or name not in held:
                update.add_column((name,), field.field_type, field.doc)
            elif field.doc != held[name].doc:
                update.update_column((name,), doc=field.doc)
    return transaction.table_metadata.schema().fields != tuple(held.values())


def _type(field: NestedField) -> str:
    """The type of a column, without the numbers that its table gave to the parts of it."""
    return re.sub(r"-?[0-9]+: ", "", str(field.field_type))


class _Unsure(Exception):
    """The catalogue lost a race, or its answer was lost. Whoever wrote looks again."""


class _Once:
    """A catalogue that is asked once. Upon an answer that a commit failed, PyIceberg would make the difference again,
    to another snapshot than it is one to, or remove its files. Yet the answer may be to a request that something on the
    way repeated, and the snapshot be there."""

    def __init__(self, catalogue: Catalog) -> None:
        self._catalogue = catalogue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalogue, name)

    def commit_table(self, *asked: Any) -> Any:
        with _changing():
            return self._catalogue.commit_table(*asked)


@contextmanager
def _changing() -> Iterator[None]:
    """Raises _Unsure for errors of the catalogue, but those of a request that it refused."""
    try:
        yield
    except Exception as error:
        if not is_clients(error) or is_refused(error):
            raise
        raise _Unsure(text_of(error)) from error
