"""The history of an Iceberg table: which rows each snapshot added, and which it took away."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from coset.sources.iceberg.data_files import rows_at
from partitioning.commands import Forget, Repeat, Then
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_NO_ROWS = np.empty(0, np.int64)


class LiveFiles:
    """Data files by their paths. Files that delete rows have `positions` of them by path; those in `by_values` delete
    rows by what these hold."""

    def __init__(
        self, entries: Iterable[ManifestEntry], positions: Callable[[DataFile], Mapping[str, np.ndarray]]
    ) -> None:
        from pyiceberg.table.delete_file_index import DeleteFileIndex  # noqa: PLC0415  an extra

        self.files: dict[str, ManifestEntry] = {}
        self.by_values = list[str]()
        self._positions = positions
        self._deletes = DeleteFileIndex()
        for entry in entries:
            self._add(entry)

    @property
    def rows(self) -> int:
        """How many rows the files have, with those that are deleted."""
        return sum(entry.data_file.record_count for entry in self.files.values())

    def _add(self, entry: ManifestEntry) -> None:
        from pyiceberg.manifest import DataFileContent  # noqa: PLC0415  an extra

        file = entry.data_file
        match file.content:
            case DataFileContent.DATA:
                self.files[file.file_path] = entry
            case DataFileContent.POSITION_DELETES:
                self._deletes.add_delete_file(entry, file.partition)
            case DataFileContent.EQUALITY_DELETES:
                self.by_values.append(file.file_path)

    def but(self, other: LiveFiles) -> Iterator[tuple[DataFile, int, str]]:
        """The rows that others have not: by the files' names each with how many, and which, as plans say it."""
        for path in sorted(self.files):
            entry, theirs = self.files[path], other.files.get(path)
            file, by = entry.data_file, self._deleting(entry)
            if theirs is not None and other._deleting(theirs) == by:
                continue
            dead, count = self._dead(path, by), file.record_count
            if theirs is not None:
                rows = np.setdiff1d(other._dead(path, other._deleting(theirs)), dead)
            elif len(dead):
                rows = np.setdiff1d(np.arange(count), dead)
            else:
                yield file, count, ""
                continue
            if len(rows):
                yield file, len(rows), rows_at(rows, count)

    def _deleting(self, entry: ManifestEntry) -> Collection[DataFile]:
        """The files that may delete rows of one."""
        return self._deletes.for_data_file(entry.sequence_number or 0, entry.data_file, entry.data_file.partition)

    def _dead(self, path: str, deleting: Collection[DataFile]) -> np.ndarray:
        """The positions that these files delete of one."""
        found = [positions for each in deleting if (positions := self._positions(each).get(path)) is not None]
        return np.unique(np.concatenate(found)) if found else _NO_ROWS


# What engines call the addresses that Coset has.
_ADDRESSES = ((re.compile(r"s3[an]://"), "s3://"), (re.compile(r"(file:)?/+"), f"{FOLDER}/"))
# What a snapshot of a pipeline's Iceberg table says of that.
PIPELINE = "coset.pipeline"
_BY_VALUES = "it deletes rows by their values (equality deletes), and only deletes by position are read"
_TWICE = "it names files more than once, and so counts their rows more than once"
_REWRITE = "let the table's engine rewrite its files, as Spark's rewrite_data_files does"


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of a data file as a snapshot added them, or took them away if they are `gone`: `count` of them. `rows` says
    which, as plans do."""

    snapshot: int
    file: DataFile
    count: int
    rows: str = ""
    gone: bool = False

    @property
    def path(self) -> str:
        """Where it lies."""
        path = self.file.file_path
        return next((new + path[len(said[0]) :] for old, new in _ADDRESSES if (said := old.match(path))), path)


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """The snapshot up to which a batch has read a table, which may have expired, and its sequence number."""

    snapshot: int
    number: int


class History:
    """The snapshots of a table up to the current one. `pipeline` reads the table as `stream`, up to what was `taken`.
    Rows may go only if it is `changing`.

    Methods raise Refused if rows went that may not, or if it is not known any more which came.
    """

    def __init__(
        self, table: Table, where: str, pipeline: str, stream: str, taken: ReadSnapshot | None, *, changing: bool
    ) -> None:
        self._table = table
        self._where = where
        self._stream = stream
        self._taken = taken
        self._changing = changing
        self._anew = Forget(pipeline, stream)
        self._by_id = {each.snapshot_id: each for each in table.snapshots()}
        self._positions = lru_cache(None)(self._deleted_by)
        self.current = table.current_snapshot()
        self.base, self.added = lru_cache(None)(self._base), lru_cache(None)(self._added)

    def since(self, anchor: int) -> list[FoundRows]:
        """What came and went behind a snapshot: in the order of the snapshots, in each what went first, then by the
        files' names."""
        return [found for snapshot in self._behind(anchor) for found in self.added(snapshot)]

    def after(self, snapshot: int, path: str) -> list[FoundRows]:
        """What follows a file in the snapshot in which it was found, whose files were not all taken."""
        if snapshot not in self._by_id:
            self._lost(snapshot)
        for found in (self.added(snapshot), self.base(snapshot)):
            paths = [each.path for each in found]
            if path in paths:
                return found[paths.index(path) + 1 :]
        self._refuse(Kind.STREAM_RESET, f"snapshot {snapshot} no longer has {path}", snapshot)

    def _behind(self, anchor: int) -> list[int]:
        """The snapshots behind one that may have other rows, the oldest first."""
        chain: list[int] = []
        snapshot = self.current
        while snapshot is None or snapshot.snapshot_id != anchor:
            if snapshot is None or _number(snapshot) < self._number_of(anchor):
                now = f"its snapshot is {self.current.snapshot_id}" if self.current else "it has no snapshot"
                what = f"{now}, which does not follow {anchor}, up to which it was read: it was rolled back or replaced"
                self._refuse(Kind.STREAM_RESET, what, anchor)
            if snapshot.snapshot_id in self._by_id:
                chain.append(snapshot.snapshot_id)
            elif not _only_rewrites(snapshot):
                self._lost(anchor)
            if (parent := self._parent(snapshot)) == anchor:
                break
            snapshot = self._by_id.get(parent or 0) or self._expired.get(parent or 0)
            if snapshot is None and parent is not None:
                self._lost(anchor)
        return chain[::-1]

    def _number_of(self, anchor: int) -> int:
        """The sequence number of a snapshot, which may have expired; 0 if that is unknown."""
        known = self._by_id.get(anchor)
        if known or self._taken is None or self._taken.snapshot != anchor:
            return _number(known) if known else 0
        return self._taken.number

    def _parent(self, snapshot: Snapshot) -> int | None:
        """The snapshot upon which one was made. Where that expires, PyIceberg no longer says it."""
        if (said := snapshot.parent_snapshot_id) is not None or snapshot.snapshot_id not in self._expired:
            return said
        return self._expired[snapshot.snapshot_id].parent_snapshot_id

    @cached_property
    def _expired(self) -> dict[int, Snapshot]:
        """What earlier metadata says of snapshots, as far as it is there: the oldest that knows each."""
        from pyiceberg.serializers import FromInputFile  # noqa: PLC0415  an extra

        found: dict[int, Snapshot] = {}
        for entry in reversed(self._table.metadata.metadata_log):
            try:
                metadata = FromInputFile.table_metadata(self._table.io.new_input(entry.metadata_file))
            except FileNotFoundError:
                continue
            found |= {each.snapshot_id: each for each in metadata.snapshots}
        return found

    def _base(self, number: int) -> list[FoundRows]:
        """All rows of a snapshot, in the order in which their files were added."""
        now = self._live(self._entries(self._manifests(number)))
        if now.by_values:
            self._deletes(number, _BY_VALUES, (f"{_REWRITE}, then ", Repeat()))
        if (counted := _rows(self._manifests(number))) is not None and now.rows != counted:
            self._deletes(number, _TWICE, (f"{_REWRITE}, so that their rows are rows of their own, then ", Repeat()))
        added = {path: entry.sequence_number or 0 for path, entry in now.files.items()}
        return sorted(_found(number, now.but(self._live())), key=lambda each: (added[each.file.file_path], each.path))

    def _added(self, number: int) -> list[FoundRows]:
        """The rows that went by a snapshot, and those that came. Raises Refused if none may go."""
        new, removed, there = self._changed(number)
        come, go = self._live(new), self._live(removed)
        self._check_rows(number, come.rows - go.rows)
        rewrites = _only_rewrites(self._by_id[number])
        if not (removed or rewrites) and len(come.files) == len(new):
            return _found(number, come.but(go))
        if not (self._changing or rewrites):
            self._deletes(number, "it deletes or overwrites rows, and a stream only grows", self._then)
        there += self._entries(each for each in self._manifests(number) if each.added_snapshot_id != number)
        before, after = self._live([*there, *removed]), self._live([*there, *new])
        by_values = before.by_values or after.by_values
        if by_values and not rewrites:
            self._deletes(number, _BY_VALUES, (f"{_REWRITE}, and begin anew with it: ", self._anew))
        went, came = _found(number, before.but(after), gone=True), _found(number, after.but(before))
        if rewrites and not by_values and sum(each.count for each in went) != sum(each.count for each in came):
            self._deletes(number, "it says that it replaces files, and has other rows", self._then)
        return [] if rewrites else [*went, *came]

    def _changed(self, number: int) -> tuple[list[ManifestEntry], list[ManifestEntry], list[ManifestEntry]]:
        """The entries that a snapshot added, those that it removed, and the others of its own manifests."""
        from pyiceberg.manifest import ManifestEntryStatus  # noqa: PLC0415  an extra

        new: list[ManifestEntry] = []
        removed: list[ManifestEntry] = []
        there: list[ManifestEntry] = []
        own = (each for each in self._manifests(number) if each.added_snapshot_id == number)
        for entry in self._entries(own, removed_too=True):
            is_new = entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == number
            is_removed = entry.status is ManifestEntryStatus.DELETED
            (removed if is_removed else new if is_new else there).append(entry)
        return new, removed, there

    def _entries(self, manifests: Iterable[ManifestFile], *, removed_too: bool = False) -> list[ManifestEntry]:
        return [
            entry
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=not removed_too)
        ]

    def _live(self, entries: Iterable[ManifestEntry] = ()) -> LiveFiles:
        return LiveFiles(entries, self._positions)

    def _deleted_by(self, file: DataFile) -> Mapping[str, np.ndarray]:
        """The positions of rows that a file deletes, by the paths of data files."""
        from pyiceberg.io.pyarrow import _read_deletes  # noqa: PLC0415  an extra

        try:
            found = _read_deletes(self._table.io, file)
        except ValueError as error:
            why = f"it is not known which rows {file.file_path} deletes: {error}"
            # Whoever has read nothing need not begin anew.
            then: Then = (f"{_REWRITE}, and begin anew with it: ", self._anew)
            number = self.current.snapshot_id if self.current else 0
            self._deletes(number, why, then if self._taken else (f"{_REWRITE}, then ", Repeat()))
        return {path: positions.to_numpy() for path, positions in found.items()}

    def _manifests(self, number: int) -> Sequence[ManifestFile]:
        return self._by_id[number].manifests(self._table.io)

    def _check_rows(self, number: int, came: int) -> None:
        """Raise Refused if a snapshot has other files than it says: by so many rows more than the one before."""
        before = self._by_id.get(self._by_id[number].parent_snapshot_id or 0)
        if before is None:
            return
        now, then = _rows(self._manifests(number)), _rows(self._manifests(before.snapshot_id))
        if now is not None and then is not None and now != then + came:
            self._deletes(number, "it has other rows than it says it added", self._then)

    @property
    def _then(self) -> Then:
        """What to do about rows that went from a stream."""
        first = "roll the table back to the snapshot before, and append what changed"
        if (summary := self.current.summary if self.current else None) and (made := summary.get(PIPELINE)):
            first = f"read what pipeline {made!r} reads"
        return (
            f"{first}; or read the table as it is: declare it by pipeline.table(…, kept=True), write what comes of it "
            "with mode='upsert' or mode='replace' to result tables of other names, and begin anew with it: ",
            self._anew,
            "; or declare it as it is in a pipeline of another name, which reads the rows that are there",
        )

    def _deletes(self, number: int, why: str, then: Then) -> NoReturn:
        what = f"{self._stream}: snapshot {number} of the table cannot be read: {why}"
        raise Refused.of(Kind.STREAM_DELETES, what, self._where, then, snapshot=number)

    def _lost(self, anchor: int) -> NoReturn:
        what = (
            f"it was read up to snapshot {anchor}, and snapshots behind that have expired: what they added is unknown"
        )
        self._refuse(Kind.STREAM_LOST, what, anchor, "keep snapshots until a batch has read them; ")

    def _refuse(self, kind: Kind, what: str, snapshot: int, first: str = "") -> NoReturn:
        then = (f"{first}give the table as it is now another stream, or begin anew with it: ", self._anew)
        raise Refused.of(kind, f"{self._stream}: {what}", self._where, then, snapshot=snapshot)


def _found(number: int, rows: Iterable[tuple[DataFile, int, str]], *, gone: bool = False) -> list[FoundRows]:
    return [FoundRows(number, file, count, which, gone) for file, count, which in rows if count]


def _rows(manifests: Iterable[ManifestFile]) -> int | None:
    """How many rows the data files of a snapshot have. None if it does not say: format 1 need not count them."""
    from pyiceberg.manifest import ManifestContent  # noqa: PLC0415  an extra

    # PyIceberg has a plain 0 in a list of format 1.
    data = [each for each in manifests if each.content == ManifestContent.DATA]
    counts = [count for each in data for count in (each.added_rows_count, each.existing_rows_count)]
    return None if None in counts else sum(count or 0 for count in counts)


def _only_rewrites(snapshot: Snapshot) -> bool:
    """Whether a snapshot has the rows of that before it."""
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415  an extra

    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def _number(snapshot: Snapshot) -> int:
    """The sequence number of a snapshot, 0 in format 1."""
    return snapshot.sequence_number or 0
