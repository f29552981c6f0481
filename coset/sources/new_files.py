"""New files of a landed stream: those whose names say that they may hold unread records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from datetime import datetime
from itertools import islice

from coset.sources.formats.landed_file import LAND_AGAIN
from coset.sources.known import KnownStream
from coset.sources.layouts import (
    AIVEN,
    Folders,
    beginning,
    folders_of,
    formats_of,
    instead_of,
    is_of_keys,
    may_hold_records,
    sink_of,
)
from partitioning.commands import Land, Then
from partitioning.documents.store import Entry, Found, Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.streams import InputFile, Layout, Stream
from partitioning.sections import cut, many, runs
from partitioning.values import replace

_SOME = 1_000


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file from a listing; `pinned` if it is as the last batch read it. `keys` is that with the keys beside it."""

    uri: str
    entry: Entry
    stored: datetime
    partition: int
    start: int
    pinned: InputFile | None
    keys: Entry | None = None

    @property
    def keys_uri(self) -> str:
        """Where its file of keys lies; nothing if it has none."""
        return f"{self.uri.rpartition('/')[0]}/{self.keys.key.rpartition('/')[2]}" if self.keys else ""


@dataclass(slots=True)
class NewFiles:
    """The new files of one stream. `findings` has all that is no file of it, `hidden` how many objects were passed over
    because of their names."""

    stream: Stream
    known: KnownStream
    findings: list[Finding] = field(default_factory=list)
    hidden: int = 0
    _store: Store = field(init=False)
    _folders: Folders = field(init=False)
    # The files of partitions that are not declared.
    _beyond: dict[int, list[str]] = field(default_factory=dict)
    # The files of keys, by how the names of those beside them begin.
    _keys: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = store_at(self.stream.source)
        self._folders = folders_of(self.stream)

    def find(self) -> list[NamedFile]:
        """Files that begin at the position read so far or later; before them, the file that was read last, and those
        that begin behind it.

        If that file is gone, changed or unknown, the newest file before the position takes its place, as it may hold
        more.
        """
        files = self._with_keys(self._find()) if self.stream.keys else self._find()
        if self._beyond:
            self._other_partitions()
        return files

    def _find(self) -> list[NamedFile]:
        known, new, newest_read = self.known, dict[str, NamedFile](), dict[int, NamedFile]()
        keys = self._last_keys()
        needed = not known.read or bool(keys)
        starts = {} if self._folders.shows_all else known.starts(self.stream, keys, () if needed else self._some_keys())
        for file in self._named(self._listed(starts)):
            is_read = file.start < known.committed(file.partition)
            if is_read:
                _keep_newest(newest_read, file)
            if file.pinned or not is_read or self._begins_in_last(file):
                new[file.uri] = file
        if not (new or newest_read):
            self._nothing_new()
        for number in known.read:
            last = known.last.get(number)
            if last is None or last.path not in new or new[last.path].pinned is None:
                if not self._folders.shows_all:
                    self._list_read(number, newest_read)
                if number in newest_read:
                    new[newest_read[number].uri] = newest_read[number]
        return list(new.values())

    def _begins_in_last(self, file: NamedFile) -> bool:
        """Whether another file begins in the one that was read last, or behind it."""
        last = self.known.last.get(file.partition)
        return last is not None and file.uri != last.path and file.start >= last.first

    def lies_beside(self) -> bool:
        """Whether objects lie in the stream's folder, and in none of its partitions, as far as one request tells."""
        there = self._store.page(f"{self.stream.name}/", "").objects
        return any(not found.entry.key.startswith(self._folders.prefix) for found in there)

    def _listed(self, starts: Mapping[str, str]) -> Iterator[Found]:
        for found in self._folders.listed(self._store, starts):
            key = found.entry.key
            self.hidden += not (key.endswith("/") or may_hold_records(self.stream, key) or is_of_keys(self.stream, key))
            yield found

    def _list_read(self, partition: int, newest: dict[int, NamedFile]) -> None:
        """Find the newest file of a partition that begins within what was read."""
        for file in self._named(self._folders.objects_in(self._store, partition)):
            if file.start < self.known.committed(partition):
                _keep_newest(newest, file)

    def _last_keys(self) -> Mapping[int, str]:
        """The keys of the files read last, if they are named as files are now."""
        source = f"{self.stream.source.rstrip('/')}/"
        keys = {number: file.path.removeprefix(source) for number, file in self.known.last.items()}
        return {number: key for number, key in keys.items() if self._folders.parse(key)}

    def _some_keys(self) -> list[str]:
        """The first keys of the stream."""
        if self._folders.shows_all:
            objects: Iterable[Found] = islice(self._folders.listed(self._store, {}), _SOME)
        else:
            objects = self._store.page(self._folders.prefix, "").objects
        return [found.entry.key for found in objects if may_hold_records(self.stream, found.entry.key)]

    def _with_keys(self, files: Sequence[NamedFile]) -> list[NamedFile]:
        """The files with those of their keys. The sink lands these last: the newest file of a partition that lacks its
        own is passed over until it is there."""
        keyed = [with_fields(file, keys=self._keys.get(beginning(file.entry.key))) for file in files]
        newest = {file.partition: file for file in sorted(keyed, key=lambda file: file.start)}
        lacking = [file for file in keyed if not (file.pinned or file.keys)]
        waiting = [file for file in lacking if self._keys and newest[file.partition] is file]
        if len(lacking) > len(waiting):
            first = next(file for file in lacking if file not in waiting)
            what = f"{many(len(lacking) - len(waiting), 'file')} of values without the file of keys beside it"
            then = (
                f"land it as {beginning(first.entry.key).rpartition('/')[2]}.keys.{self.stream.keys}; if the sink "
                "writes none (store.kafka.keys=false), leave keys= out and name columns of the value as the key"
            )
            self._found(Kind.FOLDERS, what, first.uri, then, lacking=len(lacking))
        self.hidden += len(waiting)
        return [file for file in keyed if file not in lacking]

    def _named(self, objects: Iterable[Found]) -> Iterator[NamedFile]:
        for found in objects:
            if is_of_keys(self.stream, found.entry.key):
                self._keys[beginning(found.entry.key)] = found.entry
            elif may_hold_records(self.stream, found.entry.key) and (file := self._parse(found)):
                yield file

    def _parse(self, found: Found) -> NamedFile | None:
        stream, entry = self.stream, found.entry
        uri = f"{stream.source.rstrip('/')}/{entry.key}"
        name = self._folders.parse(entry.key)
        if name is None:
            written = next(formats_of(stream, entry.key), None)
            declare = f"; if the sink writes {written.noun}, declare format={written.value!r}" if written else ""
            what, then = "the file's name cannot be read", f"name it {self._folders.wanted}, or remove it{declare}"
            if sink := sink_of(entry.key):
                what, then = f"{what}: it is one of {sink}", instead_of(sink, entry.key)
            self._found(Kind.FOLDERS, what, uri, then)
            return None
        before = len(self.findings)
        if name.stream != stream.name:
            what = f"the file's name says stream {name.stream!r}, its folder {stream.name!r}"
            self._found(Kind.FOLDERS, what, uri, LAND_AGAIN, named=name.stream)
        if name.folder not in (None, name.partition):
            what = f"the file's name says partition {name.partition}, its folder {name.folder}"
            self._found(Kind.FOLDERS, what, uri, LAND_AGAIN, partition=name.partition, folder=name.folder)
        partition = name.partition if name.folder is None else name.folder
        if len(self.findings) > before:
            return None
        if partition >= stream.partitions:
            self._beyond.setdefault(partition, []).append(uri)
            return None
        pinned = self.known.as_pinned(uri, entry.size, entry.etag)
        return NamedFile(uri, entry, found.stored, name.partition, name.start, pinned)

    def _other_partitions(self) -> None:
        """There is another count than declared, however many files show it."""
        declared, there = self.stream.partitions, sorted(self._beyond)
        files = sum(map(len, self._beyond.values()))
        numbers = f"partition{'s' if len(there) > 1 else ''} {cut(runs(there))}"
        are = f"{many(declared, 'partition')} {'are' if declared > 1 else 'is'} declared"
        what = f"{many(files, 'file')} of {numbers}, but {are}, {runs(range(declared))[0]}"
        then = (
            f"if the topic has grown, declare partitions={there[-1] + 1}, or its count if that is more "
            "(docs/internals/cosets.md#changing-counts); if it has fewer now, move the old files away"
        )
        where = f"{self._beyond[there[0]][0]}{f', and {files - 1:,} more' if files > 1 else ''}"
        self._found(Kind.PARTITIONS, what, where, then, partitions=declared, there=there)

    def _nothing_new(self) -> None:
        """What is wrong if no file may hold records that are not read yet."""
        stream = self.stream
        if self.findings or self._beyond or self._some_keys():
            return
        if self.known.ends:
            ends = cut([f"{stream.name}-{number} up to offset {end}" for number, end in self.known.ends.items()])
            what = f"no file is left of it, and it was read before: {ends}"
            then = (
                "land what comes next, from these offsets on; correct the source if the files were moved, and give "
                "the stream another name if its topic was made anew"
            )
            self._found(Kind.STREAM_RESET, what, f"{stream.source.rstrip('/')}/{stream.name}/", then, ends=ends)
            return
        aiven = folders_of(replace(stream, layout=Layout.AIVEN))
        by_aiven = next((found for found in aiven.listed(self._store, {}) if aiven.parse(found.entry.key)), None)
        if by_aiven and stream.layout is not Layout.AIVEN:
            what = f"no file is named as declared, and there are some of {AIVEN}"
            self._found(Kind.FOLDERS, what, stream.source, instead_of(AIVEN, by_aiven.entry.key))
            return
        if self._store.page(f"{stream.name}/", "").objects:
            what = f"no file lies in a folder {self._folders.prefix}<n>/"
            then = 'declare layout="time" if the sink makes folders of hours or days'
            self._found(
                Kind.FOLDERS, what, f"{stream.source.rstrip('/')}/{stream.name}/", then, prefix=self._folders.prefix
            )
            return
        names = sorted({entry.key.split("/")[0] for entry in self._store.list("") if "/partition=" in entry.key})
        correct = f"correct the name or the source; streams there: {', '.join(names)}"
        land = "nothing has landed there: correct the source, or land the first records, rows of your own with "
        self._found(
            Kind.FOLDERS,
            f"no such stream {stream.name!r}",
            stream.source,
            correct if names else (land, Land(stream.name)),
        )

    def _found(self, kind: Kind, what: str, where: str, then: Then, **values: object) -> None:
        self.findings.append(
            Finding.of(kind, f"{self.stream.name}: {what}", where, then, **{"stream": self.stream.name, **values})
        )


def _keep_newest(newest: dict[int, NamedFile], file: NamedFile) -> None:
    kept = newest.get(file.partition)
    if kept is None or kept.start < file.start:
        newest[file.partition] = file
