"""Iceberg tables: result tables in a catalogue, for the engines that look there.

The Delta log decides what a table is. Its Iceberg table has the same files, and follows it: one snapshot takes it from
the version that it followed last to that of now, whatever was done between. A snapshot is the difference between two
lists of files, and counts only upon the snapshot that was read. A process that loses a race, or an answer, looks again:
nothing is added twice.

The Delta log says which files the version has that a snapshot follows. Manifests are asked where it does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from coset.batches.tables.delta import BUCKETS, buckets_in, newest_in
from coset.batches.tables.held import BATCHES
from coset.batches.tables.live_files import LiveFile, is_known, live_files
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import Logs, opened
from coset.sources.iceberg.data_files import ids_in
from coset.sources.iceberg.named_catalogue import (
    ONLY_CURRENT,
    TableChange,
    catalogue,
    catalogue_errors,
    commit,
    is_clients,
    is_refused,
    text_of,
)
from coset.sources.iceberg.snapshots import PIPELINE
from partitioning.commands import Iceberg, Repeat
from partitioning.documents.document import canonical, digest, digest_of
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import ATTEMPT, Store
from partitioning.errors import Finding, OutcomeUnknown, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.sources import NAMESPACE
from partitioning.model.streams import PART, renamed
from partitioning.model.table_parts import Buckets
from spark_jobs.tables.table_schema import RESIDUE, folder, table_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestContent
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.types import NestedField

    from coset.batches.tables.iceberg_snapshot import NewSnapshot

# The variable with the catalogue, by its name in PyIceberg's configuration, and the namespace: `prod.analytics`.
ASKED = "COSET_ICEBERG"
_TRIES = 5
# What an Iceberg table says of the Delta table that it follows: its folder and id; of a snapshot the version and the
# digest of that. Its name tells whether somebody registered it under another one.
FOLDER, _ID, _NAME, _VERSION, _COMMIT = "coset.folder", "coset.id", "coset.table", "coset.version", "coset.commit"
_NAMES, _KEEPS = "schema.name-mapping.default", "gc.enabled"
_FORMAT = 2
_PROPERTIES = {
    "format-version": str(_FORMAT),
    # `coset compact` removes files, and keeps those that time travel and backfills need.
    _KEEPS: "false",
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


def follow(
    store: Store, pipeline: str, published: Plan | None = None, checked: int | None = None, logs: Logs | None = None
) -> tuple[str, ...]:
    """Take the Iceberg tables of a pipeline to the versions of its tables, all at once where the catalogue can. Returns
    the names of those that it took there; none if the environment asks for none.

    Whoever has just `published` a plan gives it, the attempt that it `checked`, and the `logs` that it left. This may
    be repeated and raced. Raises Refused, with all findings, if an Iceberg table is not one that follows this table,
    Unreachable if the catalogue does not answer, and OutcomeUnknown if it did not say whether it has a snapshot.
    """
    if (place := asked()) is None or (plan := published or Ledger(store, pipeline).standing().published) is None:
        return ()
    logs, findings, taken = logs or Logs(), list[Finding](), set[str]()
    with catalogue_errors(place.catalogue, Iceberg(pipeline)):
        known = catalogue(place.catalogue, **ONLY_CURRENT)
    left = [_Follower(store, plan, checked, logs, known, place, write.declared.table) for write in plan.writes()]
    for _ in range(_TRIES):
        changes, unsure, refused = _changes(left)
        findings += refused
        taken |= {each.where for each in changes}
        try:
            with catalogue_errors(f"{place.catalogue}.{place.name}", Iceberg(pipeline)), changing():
                commit(known, [*changes.values()])
        except Unsure as lost:
            unsure |= dict.fromkeys(changes, lost)
        if not (left := [*unsure]):
            break
        logs.again()
    told = [each.unclear(lost) for each, lost in unsure.items()]
    if unknown := [finding for finding in told if finding.kind is Kind.ICEBERG_UNREACHABLE]:
        raise OutcomeUnknown(*unknown)
    if findings := [*findings, *told]:
        # Of what they share each table has the same.
        raise Refused(*dict.fromkeys(findings))
    return tuple(sorted(taken))


def _changes(
    followers: Sequence[_Follower],
) -> tuple[dict[_Follower, TableChange], dict[_Follower, Unsure], list[Finding]]:
    """What the catalogue is to do to the tables of these; those whose making lost its answer; and what was refused."""
    changes, unsure, findings = dict[_Follower, TableChange](), dict[_Follower, Unsure](), list[Finding]()
    for each in followers:
        try:
            if change := each.change():
                changes[each] = change
        except Unsure as lost:
            unsure[each] = lost
        except Refused as refusal:
            findings += refusal.findings
    return changes, unsure, findings


def tidied(store: Store, table: str, keep: timedelta) -> int:
    """Remove what is too old of the Iceberg table of a table, if there is one, as `tidy` does."""
    if (place := asked()) is None:
        return 0
    from coset.batches.tables.iceberg_upkeep import tidy  # noqa: PLC0415  an extra

    return tidy(place, folder(store, table), table, keep)


def try_place() -> str | None:
    """Make a table where the environment asks for Iceberg tables, and remove it. Returns the place; None if it asks for
    none. Raises as `follow`."""
    if (place := asked()) is None:
        return None
    # Hive has no names with a hyphen.
    table = f"{place.name}.doctor_{uuid4().hex}"
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

    def __init__(
        self, store: Store, plan: Plan, checked: int | None, logs: Logs, known: Catalog, place: Namespace, table: str
    ) -> None:
        self._ledger = Ledger(store, plan.pipeline)
        self._plan = plan
        # How paths begin of files that are known to be there.
        self._looked_at = () if checked is None else (f"{BATCHES}{plan.batch}{ATTEMPT}{checked}-",)
        self._logs = logs
        self._catalogue = known
        self._place = place
        self._name = table
        self._folder = folder(store, table)
        self._then = Iceberg(plan.pipeline)
        self.where = place.named(table)

    def change(self) -> TableChange | None:
        """What the catalogue is to do: one snapshot of all that is new. None if nothing is.

        Raises Unsure if it is not known whether the table was made, and else as `follow`.
        """
        from pyiceberg.exceptions import ValidationError  # noqa: PLC0415  an extra

        with catalogue_errors(self.where, self._then):
            table = self._table()
        with opened(self._folder, self._logs) as log, catalogue_errors(self.where, self._then):
            if log and table and _version(table.current_snapshot()) > log.version():
                # Somebody has published since the log was read, or the log is an earlier one again.
                self._logs.again(self._folder)
                log = self._logs.table(self._folder)
            if log is None:
                return None
            there = self._checked(log, table) if table else self._made(log)
            try:
                return self._changed(log, there)
            except FileNotFoundError as gone:
                what = f"files of the Iceberg table's newest snapshot are gone: {text_of(gone)}"
                then = "restore them; or drop the table there, without its files, then "
                raise Refused(self._unlike(what, then)) from gone
            except (ValidationError, ValueError) as wrong:
                what = f"as it is, the Iceberg table cannot follow: {text_of(wrong)}"
                raise Refused(self._unlike(what, "drop the table there, without its files, then ")) from wrong

    def unclear(self, lost: Unsure) -> Finding:
        """The finding that the table is not known to follow after all tries, of which the last `lost` its answer."""
        if type(lost.__cause__).__name__ == "TableAlreadyExistsError":
            what = f"something else in the catalogue has its name: {lost}"
            return self._unlike(what, "name another namespace; then ")
        what = f"after {_TRIES} tries it is not known whether the table follows: {lost}"
        return Finding.of(Kind.ICEBERG_UNREACHABLE, what, self.where, self._then, table=self._name)

    def _unlike(self, what: str, then: str) -> Finding:
        what += "; the table itself has all that was published"
        return Finding.of(Kind.ICEBERG_TABLE, what, self.where, (then, self._then), table=self._name)

    def _made(self, log: TableLog) -> Table:
        _make_namespace(self._catalogue, self._place)
        said = {"comment": text} if (text := log.metadata().description) else {}
        with changing():
            return self._catalogue.create_table(
                self._identifier,
                _columns(log),
                properties=_PROPERTIES | self._mine(log) | {_NAME: self._identifier} | said,
            )

    def _mine(self, log: TableLog) -> dict[str, str]:
        return {FOLDER: self._folder, _ID: str(log.metadata().id)}

    @property
    def _identifier(self) -> str:
        return f"{self._place.name}.{self._name}"

    def _table(self, name: str = "") -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415  an extra

        try:
            return self._catalogue.load_table(name or self._identifier)
        except NoSuchTableError:
            return None

    def _checked(self, log: TableLog, table: Table) -> Table:
        """The Iceberg table. Raises Refused if it does not follow this table."""
        mine = self._mine(log)
        if (theirs := {key: table.properties.get(key) for key in mine}) != mine:
            follows = f"follows {theirs[FOLDER]}" if theirs[FOLDER] else "is not one that Coset made"
            if theirs[FOLDER] == mine[FOLDER]:
                follows = "follows a table that was there before"
            what = f"the table in the catalogue {follows}, and not {mine[FOLDER]}"
            then = "name another namespace; or drop the table there, without its files, then "
            raise Refused(self._unlike(what, then))
        if table.metadata.format_version != _FORMAT or _lies_by(table) != table.properties.get(BUCKETS, ""):
            what = "somebody else gave the Iceberg table partitions, or another format"
            raise Refused(self._unlike(what, "drop the table there, without its files, then "))
        newest = table.current_snapshot()
        if newest and not is_ours(newest) and not _keeps_files(newest):
            what = f"snapshot {newest.snapshot_id} of the Iceberg table is not Coset's: somebody else wrote to it"
            then = "roll it back to the snapshot before; or drop the table there, without its files, then "
            raise Refused(self._unlike(what, then))
        named = table.properties.get(_NAME, self._identifier)
        elsewhere = self._table(named) if named != self._identifier else None
        if elsewhere and elsewhere.metadata.table_uuid == table.metadata.table_uuid:
            what = f"the catalogue has the table as {named}, too, and what one of the two removes the other lacks"
            raise Refused(self._unlike(what, f"drop {named} there, without its files, then "))
        ours = max(filter(is_ours, table.snapshots()), key=lambda each: each.sequence_number or 0, default=None)
        if ours and (changed := _renamed(table, ours)):
            what = f"somebody else renamed columns of the Iceberg table: {changed}"
            then = "name them as they were; or drop the table there, without its files, then "
            raise Refused(self._unlike(what, then))
        return table

    def _changed(self, log: TableLog, table: Table) -> TableChange | None:
        from pyiceberg.manifest import ManifestContent  # noqa: PLC0415  an extra
        from pyiceberg.table.update import AssertTableUUID  # noqa: PLC0415

        from coset.batches.tables.iceberg_snapshot import FilesChange, NewSnapshot  # noqa: PLC0415  an extra
        from coset.batches.tables.position_deletes import written  # noqa: PLC0415  an extra

        metadata, updates, requirements = _evolved(table, _columns(log), self._identifier, _buckets(log))
        newest, places = table.current_snapshot(), table.location_provider()
        snapshot = NewSnapshot(metadata, table.io, places)
        wanted, before = self._named(live_files(log)), self._before(log, newest, snapshot)
        # Where files lie is said where they are named.
        stay = {of: () if metadata.default_spec_id != table.spec().spec_id else before[of] for of in wanted}
        gone = {of: before[of] - (files.keys() & stay[of]) for of, files in wanted.items()}
        data, dead = ([files[name] for name in sorted(files.keys() - stay[of])] for of, files in wanted.items())
        if newest is None or any(gone.values()) or data or dead:
            come = {
                ManifestContent.DATA: self._described(metadata, data),
                ManifestContent.DELETES: written(self._folder, dead, table.io, places, snapshot.mark, metadata.spec()),
            }
            changes = [FilesChange(content, gone[content], come[content]) for content in ManifestContent]
            added, upon = snapshot.written(changes, self._said(log))
            updates, requirements = (*updates, *added), (*requirements, *upon)
        if not updates:
            return None
        return TableChange(table, (*requirements, AssertTableUUID(uuid=metadata.table_uuid)), updates)

    def _described(self, metadata: TableMetadata, files: Sequence[LiveFile]) -> list[DataFile]:
        from coset.batches.tables.iceberg_files import DataFiles, Elsewhere  # noqa: PLC0415  an extra

        try:
            return DataFiles(self._folder, metadata).described(files, self._looked_at)
        except Elsewhere as elsewhere:
            then = "restore the table's _delta_log/ as it was written; then "
            raise Refused(self._unlike(str(elsewhere), then)) from elsewhere

    def _named(self, files: Sequence[LiveFile]) -> dict[ManifestContent, dict[str, LiveFile]]:
        """Files by the names of the data files, and of the position deletes, that an Iceberg table has of them."""
        from pyiceberg.manifest import ManifestContent  # noqa: PLC0415  an extra

        from coset.batches.tables.position_deletes import vector_name  # noqa: PLC0415  an extra

        return {
            ManifestContent.DATA: {f"{self._folder}/{file.path}": file for file in files},
            ManifestContent.DELETES: {vector_name(file): file for file in files if file.dead},
        }

    def _before(
        self, log: TableLog, newest: Snapshot | None, snapshot: NewSnapshot
    ) -> Mapping[ManifestContent, Set[str]]:
        """The names of the files that the Iceberg table has: by the version that it follows, if the log still has that
        as it was then, else by all manifests."""
        version = _version(newest)
        if newest and is_known(log, version) and _said_of(newest).get(_COMMIT) == _digest(log, version):
            files = self._named(live_files(log, version))
            if all(snapshot.count(content) == len(names) for content, names in files.items()):
                return {content: names.keys() for content, names in files.items()}
        return {content: snapshot.names(content) for content in self._named(())}

    def _said(self, log: TableLog) -> dict[str, str]:
        """What a snapshot says of itself: the version, its newest batch, and the offsets up to which it counts."""
        version, batch = log.version(), newest_in(log, self._plan.pipeline, self._name)
        said = {_VERSION: str(version), _COMMIT: _digest(log, version), PIPELINE: self._plan.pipeline}
        plan = self._plan if batch == self._plan.batch else None if batch is None else self._ledger.plan(batch)
        if plan is None:
            return said
        ends = {f"{read.name}-{end.partition}": end.end for read in plan.ends.streams for end in read.ends}
        return said | {
            "coset.batch": str(plan.batch),
            "coset.digest": digest(plan),
            "coset.offsets": canonical(ends).decode(),
        }


def _renamed(table: Table, ours: Snapshot) -> str:
    """The columns, and their parts, that have other names than in one of Coset's snapshots. Files still have those of
    then, and bounds: a filter would go by those of another column."""
    schemas = table.schemas()
    if ours.schema_id not in schemas:
        return ""
    differing = renamed(ids_in(schemas[ours.schema_id]), ids_in(table.schema())).items()
    return ", ".join(f"{now} was {was}" for now, was in differing if was).replace(PART, ".")


def _said_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a snapshot follows a version of a Delta table."""
    return _VERSION in _said_of(snapshot)


def _keeps_files(snapshot: Snapshot) -> bool:
    """Whether a snapshot has the files of that before it, as of Spark's rewrite_manifests."""
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415  an extra

    changes = [key for key in _said_of(snapshot) if key.startswith(("added-", "deleted-", "removed-"))]
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE and not changes


def _version(snapshot: Snapshot | None) -> int:
    """The version of its Delta table that a snapshot follows. -1 if it follows none."""
    return int(_said_of(snapshot).get(_VERSION, -1))


def _digest(log: TableLog, version: int) -> str:
    return digest_of(log.commit(version) or b"")


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


def _buckets(log: TableLog) -> Buckets | None:
    """The buckets that the partitions of a table are."""
    return buckets_in(log) if log.metadata().partition_columns == [RESIDUE] else None


def _lies_by(table: Table) -> str:
    """By what buckets the files of an Iceberg table lie. Empty if by none; by others, how the table shows that."""
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

    match table.spec().fields:
        case ():
            return ""
        case (field,) if isinstance(field.transform, BucketTransform):
            key = table.schema().find_column_name(field.source_id)
            return str(Buckets(field.transform.num_buckets, key or ""))
        case _:
            return str(table.spec())


def _evolved(
    table: Table, columns: pa.Schema, name: str, buckets: Buckets | None
) -> tuple[TableMetadata, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The metadata of an Iceberg table with the columns and buckets of its table, what a catalogue is to do for that,
    and upon what. One that has another type there is another column."""
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

    transaction = table.transaction()
    said = {_NAME: name, BUCKETS: str(buckets or ""), _KEEPS: _PROPERTIES[_KEEPS]}
    if other_said := {key: value for key, value in said.items() if table.properties.get(key, "") != value}:
        transaction.set_properties(other_said)
    if not _maps_names(table):
        # Files have no ids of columns. PyIceberg keeps it when columns change.
        transaction.set_properties({_NAMES: table.schema().name_mapping.model_dump_json()})
    wanted = {field.name: field for field in _schema(columns).fields}
    held = {field.name: field for field in table.schema().fields}
    other = [key for key in held if key in wanted and _type(held[key]) != _type(wanted[key])]
    if lies_otherwise := _lies_by(table) != str(buckets or "") or (buckets is not None and buckets.key in other):
        with transaction.update_spec() as lies:
            for part in table.spec().fields:
                lies.remove_field(part.name)
    _change_columns(transaction, held, wanted, other)
    if lies_otherwise and buckets:
        # No column has the name of a partition.
        named = next(free for n in count() if (free := f"{buckets.key}_bucket_{buckets.count}{'_' * n}") not in wanted)
        with transaction.update_spec() as lies:
            lies.add_field(buckets.key, BucketTransform(buckets.count), named)
    updates, requirements = transaction._updates, transaction._requirements
    return transaction.table_metadata if updates else table.metadata, updates, requirements


def _change_columns(
    transaction: Transaction, held: Mapping[str, NestedField], wanted: Mapping[str, NestedField], other: Sequence[str]
) -> None:
    """Let a table have the columns that are wanted, of which some have another type. What others say of columns that
    go, or that have a value in each row, goes too."""
    gone = [*other, *(held.keys() - wanted.keys())]
    altered = [name for name in held if name in wanted and _said_of_it(held[name]) != _said_of_it(wanted[name])]
    if not gone and not altered and held.keys() == wanted.keys():
        return
    if gone and not transaction.table_metadata.sort_order().is_unsorted:
        transaction.update_sort_order().commit()
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        if gone or any(held[name].required for name in altered):
            update.set_identifier_fields()
        for name in gone:
            update.delete_column((name,))
        for name, field in wanted.items():
            if name in other or name not in held:
                update.add_column((name,), field.field_type, field.doc)
            elif name in altered:
                update.update_column((name,), doc=field.doc, required=field.required)


def _said_of_it(field: NestedField) -> tuple[str | None, bool]:
    return field.doc, field.required


def _maps_names(table: Table) -> bool:
    """Whether a table says by the names of all of its columns, and their parts, which they are."""
    mapping, schema = table.metadata.name_mapping(), table.schema()
    mapped = {name: each.field_id for name, each in mapping._field_by_name.items()} if mapping else {}
    return all(mapped.get(name) == schema.find_field(name).field_id for name in schema.column_names)


def _type(field: NestedField) -> str:
    """The type of a column, without the numbers that its table gave to the parts of it."""
    return re.sub(r"-?[0-9]+: ", "", str(field.field_type))


class Unsure(Exception):
    """The catalogue lost a race, or its answer was lost. Whoever wrote looks again."""


@contextmanager
def changing() -> Iterator[None]:
    """Raises Unsure for errors of the catalogue, but those of a request that it refused."""
    try:
        yield
    except Exception as error:
        # PyIceberg has ValueError for a change that is none any more, as of a number that a branch took.
        if is_refused(error) or not (is_clients(error) or isinstance(error, ValueError)):
            raise
        raise Unsure(text_of(error)) from error
