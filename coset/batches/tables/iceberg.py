"""Iceberg tables: result tables in a catalogue, for the engines that look there.

The Delta log decides what a table is. Its Iceberg table has the same files, and follows it: one snapshot takes it from
the version that it followed last to that of now, whatever was done between. A snapshot is the difference between two
lists of files, and counts only upon the snapshot that was read. A process that loses a race, or an answer, looks again:
nothing is added twice.

The Delta log says which files the version has that a snapshot follows. Manifests are asked where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from typing import TYPE_CHECKING

from coset.batches.tables.delta import BUCKETS, newest_in
from coset.batches.tables.held import BATCHES
from coset.batches.tables.iceberg_marks import (
    COMMIT,
    FOLDER,
    ID,
    NAME,
    VERSION,
    is_ours,
    keeps_files,
    said_of,
    version_of,
)
from coset.batches.tables.iceberg_place import Namespace, asked, make_namespace, make_table
from coset.batches.tables.iceberg_schema import (
    FORMAT,
    PROPERTIES,
    buckets_of,
    columns_of,
    evolved,
    iceberg_schema,
    lies_by,
    renamed_since,
)
from coset.batches.tables.live_files import LiveFile, is_known, live_files
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import Logs, opened
from coset.sources.iceberg.catalogue_changes import TableChange, commit
from coset.sources.iceberg.named_catalogue import ONLY_CURRENT, Unsure, catalogue, catalogue_errors, changing, text_of
from coset.sources.iceberg.snapshots import PIPELINE
from partitioning.commands import Iceberg
from partitioning.documents.document import canonical, digest, digest_of
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import ATTEMPT, Store
from partitioning.errors import Finding, OutcomeUnknown, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, PlannedWrite
from spark_jobs.tables.table_schema import folder, table_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestContent
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from coset.batches.tables.iceberg_snapshot import NewSnapshot

_TRIES = 5


def check_followable(write: PlannedWrite) -> None:
    """Raise Refused if no Iceberg table could follow a table, and the environment asks for one. Raises as `asked`, and
    ModuleNotFoundError without the extra."""
    if asked() is None:
        return
    table = write.declared.table
    try:
        iceberg_schema(table_schema(write))
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
            if log and table and version_of(table.current_snapshot()) > log.version():
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
        said = {"comment": text} if (text := log.metadata().description) else {}
        with changing():
            make_namespace(self._catalogue, self._place)
            return make_table(
                self._catalogue,
                self._place,
                self._name,
                columns_of(log),
                properties=PROPERTIES | self._mine(log) | {NAME: self._identifier} | said,
            )

    def _mine(self, log: TableLog) -> dict[str, str]:
        return {FOLDER: self._folder, ID: str(log.metadata().id)}

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
        if table.metadata.format_version != FORMAT or lies_by(table) != table.properties.get(BUCKETS, ""):
            what = "somebody else gave the Iceberg table partitions, or another format"
            raise Refused(self._unlike(what, "drop the table there, without its files, then "))
        newest = table.current_snapshot()
        if newest and not is_ours(newest) and not keeps_files(newest):
            what = f"snapshot {newest.snapshot_id} of the Iceberg table is not Coset's: somebody else wrote to it"
            then = "roll it back to the snapshot before; or drop the table there, without its files, then "
            raise Refused(self._unlike(what, then))
        named = table.properties.get(NAME, self._identifier)
        elsewhere = self._table(named) if named != self._identifier else None
        if elsewhere and elsewhere.metadata.table_uuid == table.metadata.table_uuid:
            what = f"the catalogue has the table as {named}, too, and what one of the two removes the other lacks"
            raise Refused(self._unlike(what, f"drop {named} there, without its files, then "))
        ours = max(filter(is_ours, table.snapshots()), key=lambda each: each.sequence_number or 0, default=None)
        if ours and (changed := renamed_since(table, ours)):
            what = f"somebody else renamed columns of the Iceberg table: {changed}"
            then = "name them as they were; or drop the table there, without its files, then "
            raise Refused(self._unlike(what, then))
        return table

    def _changed(self, log: TableLog, table: Table) -> TableChange | None:
        from pyiceberg.manifest import ManifestContent  # noqa: PLC0415  an extra
        from pyiceberg.table.update import AssertTableUUID  # noqa: PLC0415

        from coset.batches.tables.iceberg_snapshot import FilesChange, NewSnapshot  # noqa: PLC0415  an extra
        from coset.batches.tables.position_deletes import written  # noqa: PLC0415  an extra

        metadata, updates, requirements = evolved(table, columns_of(log), self._identifier, buckets_of(log))
        newest, places = table.current_snapshot(), table.location_provider()
        snapshot = NewSnapshot(metadata, table.io, places)
        before, wanted = self._before(log, newest, snapshot), self._named(live_files(log))
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
        version = version_of(newest)
        if newest and is_known(log, version) and said_of(newest).get(COMMIT) == _digest(log, version):
            files = self._named(live_files(log, version))
            if all(snapshot.count(content) == len(names) for content, names in files.items()):
                return {content: names.keys() for content, names in files.items()}
        return {content: snapshot.names(content) for content in self._named(())}

    def _said(self, log: TableLog) -> dict[str, str]:
        """What a snapshot says of itself: the version, its newest batch, and the offsets up to which it counts."""
        version, batch = log.version(), newest_in(log, self._plan.pipeline, self._name)
        said = {VERSION: str(version), COMMIT: _digest(log, version), PIPELINE: self._plan.pipeline}
        plan = self._plan if batch == self._plan.batch else None if batch is None else self._ledger.plan(batch)
        if plan is None:
            return said
        ends = {f"{read.name}-{end.partition}": end.end for read in plan.ends.streams for end in read.ends}
        return said | {
            "coset.batch": str(plan.batch),
            "coset.digest": digest(plan),
            "coset.offsets": canonical(ends).decode(),
        }


def _digest(log: TableLog, version: int) -> str:
    return digest_of(log.commit(version) or b"")
