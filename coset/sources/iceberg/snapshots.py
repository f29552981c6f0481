"""The history of an Iceberg table: which rows each snapshot added, and what a reader of rows cannot follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from partitioning.commands import Forget, Repeat, Then
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

# What engines call the addresses that Coset has.
_ADDRESSES = ((re.compile(r"s3[an]://"), "s3://"), (re.compile(r"(file:)?/+"), f"{FOLDER}/"))
_REWRITE = "rewrite its files, as Spark's rewrite_data_files does, so that none has deleted rows"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file with rows, by the partition spec `spec`, as it was found in a snapshot."""

    snapshot: int
    spec: int
    file: DataFile

    @property
    def path(self) -> str:
        """Where it lies."""
        path = self.file.file_path
        return next((new + path[len(said[0]) :] for old, new in _ADDRESSES if (said := old.match(path))), path)


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """The snapshot up to which a batch has read a table, which may have expired: its sequence number, and how many rows
    it had, if the batch took all."""

    snapshot: int
    number: int
    rows: int | None


class History:
    """The snapshots of a table up to the current one. `pipeline` reads the table as `stream`, up to what was `taken`.

    Methods raise Refused where rows went, or where what was added is no longer known.
    """

    def __init__(self, table: Table, where: str, pipeline: str, stream: str, taken: ReadSnapshot | None) -> None:
        self._table = table
        self._where = where
        self._stream = stream
        self._taken = taken
        self._anew = Forget(pipeline, stream)
        self._by_id = {each.snapshot_id: each for each in table.snapshots()}
        self.current = table.current_snapshot()
        self._then: Then = (
            f"roll the table back to the snapshot before, and append what changed; or {_REWRITE}, and begin anew with "
            "what is there, though result tables and kept steps still have what went: ",
            self._anew,
        )
        self.base, self.added = lru_cache(None)(self._base), lru_cache(None)(self._added)

    def since(self, anchor: int) -> list[AddedFile]:
        """What was added behind a snapshot, in the order of the snapshots, and of the files' names in each."""
        return [file for snapshot in self._behind(anchor) for file in self.added(snapshot.snapshot_id)]

    def after(self, snapshot: int, path: str) -> list[AddedFile]:
        """What follows a file in the snapshot in which it was found, whose files were not all taken."""
        if snapshot not in self._by_id:
            self._lost(snapshot)
        for found in (self.added(snapshot), self.base(snapshot)):
            paths = [each.path for each in found]
            if path in paths:
                return found[paths.index(path) + 1 :]
        self._refuse(Kind.STREAM_RESET, f"snapshot {snapshot} no longer has {path}", snapshot)

    def _behind(self, anchor: int) -> list[Snapshot]:
        """The snapshots behind one, the oldest first."""
        chain: list[Snapshot] = []
        snapshot = self.current
        while snapshot is None or snapshot.snapshot_id != anchor:
            if snapshot is None or _number(snapshot) < self._number_of(anchor):
                now = f"its snapshot is {self.current.snapshot_id}" if self.current else "it has no snapshot"
                what = f"{now}, which does not follow snapshot {anchor}, up to which it was read: it was rolled back"
                self._refuse(Kind.STREAM_RESET, what, anchor)
            chain.append(snapshot)
            parent = snapshot.parent_snapshot_id
            if parent == anchor or (parent is None and self._follows(snapshot, anchor)):
                break
            if parent not in self._by_id:
                self._lost(anchor)
            snapshot = self._by_id[parent]
        return chain[::-1]

    def _number_of(self, anchor: int) -> int:
        """The sequence number of a snapshot, which may have expired; 0 if that is unknown."""
        known = self._by_id.get(anchor)
        if known or self._taken is None or self._taken.snapshot != anchor:
            return _number(known) if known else 0
        return self._taken.number

    def _follows(self, snapshot: Snapshot, anchor: int) -> bool:
        """Whether a snapshot is the next after one that has expired. PyIceberg takes the parent away then. Numbers have
        no gaps; to roll a table back, and append to it, takes one too, but the rows are others."""
        taken = self._taken
        if taken is None or taken.rows is None or (taken.snapshot, taken.number + 1) != (anchor, _number(snapshot)):
            return False
        return _rows(self._manifests(snapshot.snapshot_id)) == taken.rows + _added_rows(
            self.added(snapshot.snapshot_id)
        )

    def _base(self, number: int) -> list[AddedFile]:
        """All files of a snapshot, in the order in which they were added."""
        entries = list[tuple[int, AddedFile]]()
        for manifest in self._manifests(number):
            for entry in manifest.fetch_manifest_entry(self._table.io):
                if _has_deletes(manifest):
                    self._deletes(number, "some of its rows are deleted", (f"{_REWRITE}, then ", Repeat()))
                entries.append((entry.sequence_number or 0, self._file(number, manifest, entry)))
        return [file for _, file in sorted(entries, key=lambda each: (each[0], each[1].path))]

    def _added(self, number: int) -> list[AddedFile]:
        """The files that a snapshot added, by their names. Raises Refused if it took rows away."""
        from pyiceberg.manifest import ManifestEntryStatus  # noqa: PLC0415  an extra
        from pyiceberg.table.snapshots import Operation  # noqa: PLC0415

        snapshot, all_manifests = self._by_id[number], self._manifests(number)
        before = self._by_id.get(snapshot.parent_snapshot_id or 0)
        files = list[AddedFile]()
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            for manifest in all_manifests:
                if manifest.added_snapshot_id != number:
                    continue
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                    if entry.status is ManifestEntryStatus.DELETED or _has_deletes(manifest):
                        self._deletes(number, "it deletes or overwrites rows", self._then)
                    if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == number:
                        files.append(self._file(number, manifest, entry))
        # Format 1 need not count them.
        counted = self._table.metadata.format_version > 1
        if (
            counted
            and before is not None
            and _rows(all_manifests) != _rows(self._manifests(before.snapshot_id)) + _added_rows(files)
        ):
            self._deletes(number, "it has other rows than it says it added", self._then)
        return sorted(files, key=lambda each: each.path)

    def _manifests(self, number: int) -> Sequence[ManifestFile]:
        return self._by_id[number].manifests(self._table.io)

    def _file(self, number: int, manifest: ManifestFile, entry: ManifestEntry) -> AddedFile:
        return AddedFile(number, manifest.partition_spec_id, entry.data_file)

    def _deletes(self, number: int, why: str, then: Then) -> NoReturn:
        what = f"snapshot {number} of the table cannot be read: {why}, and a stream only grows"
        raise Refused.of(Kind.STREAM_DELETES, f"{self._stream}: {what}", self._where, then, snapshot=number)

    def _lost(self, anchor: int) -> NoReturn:
        what = (
            f"it was read up to snapshot {anchor}, and snapshots behind that have expired: what they added is unknown"
        )
        self._refuse(Kind.STREAM_LOST, what, anchor, "keep snapshots until a batch has read them; ")

    def _refuse(self, kind: Kind, what: str, snapshot: int, first: str = "") -> NoReturn:
        then = (f"{first}give the table as it is now another stream, or begin anew with it: ", self._anew)
        raise Refused.of(kind, f"{self._stream}: {what}", self._where, then, snapshot=snapshot)


def _has_deletes(manifest: ManifestFile) -> bool:
    from pyiceberg.manifest import ManifestContent  # noqa: PLC0415  an extra

    return manifest.content is ManifestContent.DELETES


def _rows(manifests: Sequence[ManifestFile]) -> int:
    """How many rows the data files of a snapshot have."""
    data = [each for each in manifests if not _has_deletes(each)]
    return sum((each.added_rows_count or 0) + (each.existing_rows_count or 0) for each in data)


def _added_rows(files: Sequence[AddedFile]) -> int:
    return sum(each.file.record_count for each in files)


def _number(snapshot: Snapshot) -> int:
    """The sequence number of a snapshot, 0 in format 1."""
    return snapshot.sequence_number or 0
