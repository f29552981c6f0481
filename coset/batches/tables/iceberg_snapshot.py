"""A new snapshot of an Iceberg table: what is written to its folder before the catalogue is asked to take it.

Of the manifests of the snapshot before only those are read that have a file which goes, or few files beside what is
new. They become one with what is new. So a table of n files has about log n manifests, and a file is written to about
log n of them in its life.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate, UpdatesAndRequirements

from coset.batches.tables.position_deletes import name_of
from coset.sources.iceberg.own_files import OwnFiles

_CODEC: Any = "gzip"
# Of manifests with more files these are not kept.
_MOST_KEPT = 200
# The manifests of a table by the file with their list, and the files of those that this process wrote.
_OWN = OwnFiles[tuple[Sequence[ManifestFile], Mapping[str, Sequence[ManifestEntry]]]]()


@dataclass(frozen=True, slots=True)
class FilesChange:
    """The files of one kind that go, by their names, and those that come."""

    content: ManifestContent
    gone: Collection[str]
    come: Sequence[DataFile]


class NewSnapshot:
    """One upon the current snapshot of a table, which has this metadata then."""

    def __init__(self, metadata: TableMetadata, io: FileIO, places: LocationProvider) -> None:
        self.id = metadata.new_snapshot_id()
        self._metadata, self._io, self._places = metadata, io, places
        self._before, self._number = metadata.current_snapshot(), metadata.next_sequence_number()
        # The files of manifests that need not be read.
        self._known = dict[str, Sequence[ManifestEntry]]()
        manifests = self._manifests_of(self._before) if self._before else ()
        # One that has only what went is of no use to later snapshots.
        self._held = [each for each in manifests if _count(each)]
        self._gone = list[tuple[DataFile, PartitionSpec]]()
        # No two attempts write files of one name. It says, too, when nothing can name a file any more.
        self.mark = f"{metadata.table_uuid}-{self._number}-{uuid4().hex}"

    def count(self, content: ManifestContent) -> int:
        """How many files of a kind the snapshot before has."""
        return sum(map(_count, self._of(content)))

    def names(self, content: ManifestContent) -> set[str]:
        """The names of the files of a kind that the snapshot before has, which takes all their manifests."""
        return {name_of(entry.data_file) for each in self._of(content) for entry in self._entries(each)}

    def written(self, changes: Sequence[FilesChange], said: Mapping[str, str]) -> UpdatesAndRequirements:
        """Write it. Returns what a catalogue is to do then, and upon what."""
        before = self._before.snapshot_id if self._before else None
        manifests = [each for change in changes for each in self._manifests(change)]
        where = self._places.new_metadata_location(f"coset-{self.mark}-list.avro")
        with write_manifest_list(2, self._io.new_output(where), self.id, before, self._number, _CODEC) as writer:
            manifests = [*map(writer.prepare_manifest, manifests)]
            writer.add_manifests(manifests)
        paths = {each.manifest_path for each in manifests}
        known = {path: entries for path, entries in self._known.items() if path in paths and len(entries) <= _MOST_KEPT}
        _OWN.keep(str(self._metadata.table_uuid), where, (manifests, known))
        snapshot = Snapshot(  # type: ignore[call-arg]  # by their aliases
            snapshot_id=self.id,
            parent_snapshot_id=before,
            sequence_number=self._number,
            manifest_list=where,
            summary=self._summary([file for change in changes for file in change.come], said),
            schema_id=self._metadata.current_schema_id,
        )
        kind = SnapshotRefType.BRANCH
        to = SetSnapshotRefUpdate(snapshot_id=self.id, ref_name=MAIN_BRANCH, type=kind)  # type: ignore[call-arg]
        upon = AssertRefSnapshotId(snapshot_id=before, ref=MAIN_BRANCH)  # type: ignore[call-arg]
        return (AddSnapshotUpdate(snapshot=snapshot), to), (upon,)

    def _manifests_of(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        if own := _OWN.found(str(self._metadata.table_uuid), snapshot.manifest_list):
            manifests, known = own
            self._known |= known
            return manifests
        return snapshot.manifests(self._io)

    def _entries(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """The files that a manifest has."""
        return self._known.get(manifest.manifest_path) or manifest.fetch_manifest_entry(self._io)

    def _of(self, content: ManifestContent) -> list[ManifestFile]:
        return [each for each in self._held if each.content is content]

    def _manifests(self, change: FilesChange) -> list[ManifestFile]:
        held, left = self._of(change.content), {*change.gone}
        if not change.come and not left:
            return held
        # A manifest has files that lie in one way.
        entries, stay = {self._metadata.default_spec_id: list[ManifestEntry]()}, list[ManifestFile]()
        # Mostly the files that came last go.
        for each in sorted(held, key=lambda each: each.sequence_number, reverse=True):
            is_small = _count(each) < 2 * (len(change.come) + sum(map(len, entries.values())))
            read = self._entries(each) if is_small or left else []
            found = left & {name_of(entry.data_file) for entry in read}
            left -= found
            if is_small or found:
                entries.setdefault(each.partition_spec_id, []).extend(read)
            else:
                stay.append(each)
        made = (self._manifest(change, spec, held) for spec, held in entries.items())
        return [*filter(None, made), *stay]

    def _manifest(self, change: FilesChange, number: int, held: Sequence[ManifestEntry]) -> ManifestFile | None:
        come = change.come if number == self._metadata.default_spec_id else ()
        if not come and not held:
            return None
        name = f"coset-{self.mark}-{change.content.name.lower()}-{number}.avro"
        output = self._io.new_output(self._places.new_metadata_location(name))
        spec, schema = self._metadata.specs()[number], self._metadata.schema()
        kept = self._known[output.location] = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.id,
                sequence_number=self._number,
                file_sequence_number=self._number,
                data_file=file,
            )
            for file in come
        ]
        with _Manifest(change.content, spec, schema, output, self.id, _CODEC) as writer:
            for entry in kept:
                writer.add(entry)
            for entry in held:
                if name_of(entry.data_file) in change.gone:
                    writer.delete(entry)
                    self._gone.append((entry.data_file, spec))
                else:
                    writer.existing(entry)
                    kept.append(entry)
        return writer.to_manifest_file()

    def _summary(self, come: Sequence[DataFile], said: Mapping[str, str]) -> Summary:
        collector, spec, schema = SnapshotSummaryCollector(), self._metadata.spec(), self._metadata.schema()
        for file in come:
            collector.add_file(file, schema, spec)
        for file, lay in self._gone:
            collector.remove_file(file, schema, lay)
        appends = not self._gone and all(file.content is DataFileContent.DATA for file in come)
        operation = Operation.APPEND if appends else Operation.OVERWRITE
        before = self._before.summary if self._before else None
        return update_snapshot_summaries(Summary(operation=operation, **collector.build(), **said), before)


def _count(manifest: ManifestFile) -> int:
    """How many files a manifest has, without those that went."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


class _Manifest(ManifestWriterV2):
    """A manifest of either kind: PyIceberg 0.12 writes those of data files."""

    def __init__(self, content: ManifestContent, *of: Any) -> None:
        super().__init__(*of)
        self._content = content

    def content(self) -> ManifestContent:
        return self._content

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": self._content.name.lower()}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        of, read = self._with_partition(self.version), self._with_partition(DEFAULT_READ_VERSION)
        return _OneBlock(self._output_file, of, "manifest_entry", read, self._meta)


class _OneBlock(AvroOutputFile[ManifestEntry]):
    """Entries that are written, and compressed, together."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._entries = list[ManifestEntry]()

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._entries += objects

    def __exit__(self, *raised: Any) -> None:
        super().write_block(self._entries)
        # Its length, which the store would be asked for.
        self.output_file = range(self.tell())  # type: ignore[assignment]
        super().__exit__(*raised)
