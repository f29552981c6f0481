"""New files: those of a stream's landed files that may hold records which no batch has read, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from partitioning.documents.store import Entry, Found, S3Store
from partitioning.errors import Finding
from partitioning.model.streams import InputFile, Stream
from partitioning.sections import cut
from sources.known import Known
from sources.listing import folders, listed, objects_in

LAND_AGAIN = "remove the file and land it again"

_FILE = re.compile(
    r"partition=(?P<folder>0|[1-9][0-9]*)/(?P<stream>[^/+]+)\+(?P<partition>0|[1-9][0-9]*)\+(?P<start>[0-9]{10,19})"
    r"(\.[a-z0-9]+)?\.parquet"  # the sink names the codec, too: .snappy.parquet
)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as its listing shows it; if it is as the last batch read it, it is `pinned`."""

    uri: str
    entry: Entry
    stored: datetime
    partition: int
    start: int
    pinned: InputFile | None


@dataclass(slots=True)
class NewFiles:
    """The new files of one stream, with `findings` for all that is no file of it."""

    stream: Stream
    known: Known
    findings: list[Finding] = field(default_factory=list)
    _store: S3Store = field(init=False)

    def __post_init__(self) -> None:
        self._store = S3Store(self.stream.source)

    def find(self) -> list[NamedFile]:
        """Files that begin where a partition was read up to, or later; before that the file that was read last.

        If that one is gone or was changed, the newest of those that are there comes in its place: it may hold more.
        """
        known = self.known
        there = self._named(listed(self._store, self.stream.name, known.starts(self.stream, self._some_keys())))
        if not there and not self.findings and not self._some_keys(always=True):
            self._nothing_there()
        new = {file.uri: file for file in there if file.pinned or file.start >= known.committed(file.partition)}
        for number in known.read:
            last = known.last(number)
            if last is not None and (last.path not in new or new[last.path].pinned is None):
                new |= {file.uri: file for file in self._newest_read(number)}
        return list(new.values())

    def _newest_read(self, partition: int) -> list[NamedFile]:
        """The newest file of a partition that begins within what was read, if one is left."""
        files = self._named(objects_in(self._store, self.stream.name, partition))
        read = [file for file in files if file.start < self.known.committed(partition)]
        return [max(read, key=lambda file: file.start)] if read else []

    def _some_keys(self, *, always: bool = False) -> list[str]:
        """The first keys of the stream, if they are needed."""
        if self.known.knows_names and not always:
            return []
        objects = self._store.page(folders(self.stream.name), "").objects
        return [found.entry.key for found in objects if not found.entry.key.endswith("/")]

    def _named(self, objects: Iterable[Found]) -> list[NamedFile]:
        # A key that ends in a slash is a folder's marker; it holds no records.
        files = (self._parse(found) for found in objects if not found.entry.key.endswith("/"))
        return [file for file in files if file is not None]

    def _parse(self, found: Found) -> NamedFile | None:
        stream, entry = self.stream, found.entry
        uri = f"{stream.source.rstrip('/')}/{entry.key}"
        match = _FILE.fullmatch(entry.key.removeprefix(f"{stream.name}/"))
        if match is None:
            wanted = f"partition=<n>/{stream.name}+<n>+<first offset, 10 digits>.parquet"
            self._found("the file's name cannot be read", uri, f"name it {wanted}, or remove it")
            return None
        folder, partition = int(match["folder"]), int(match["partition"])
        before = len(self.findings)
        if match["stream"] != stream.name:
            what = f"the file's name says stream {match['stream']!r}, its folder {stream.name!r}"
            self._found(what, uri, LAND_AGAIN)
        if folder != partition:
            self._found(f"the file's name says partition {partition}, its folder {folder}", uri, LAND_AGAIN)
        if folder >= stream.partitions:
            what = f"partition {folder} is beyond the {stream.partitions} partitions that are declared"
            self._found(what, uri, "declare the topic's partition count; if it has fewer now, move the old files away")
        if len(self.findings) > before:
            return None
        pinned = self.known.as_pinned(uri, entry.size, entry.etag)
        return NamedFile(uri, entry, found.stored, folder, int(match["start"]), pinned)

    def _nothing_there(self) -> None:
        stream = self.stream
        if self.known.ends:
            ends = cut([f"{offsets.partition} up to offset {offsets.end}" for offsets in self.known.ends.values()])
            self._found(
                f"no file is left of it, and it was read before: {ends}",
                f"{stream.source.rstrip('/')}/{stream.name}/",
                "land what comes next, from these offsets on; correct the source if the files were moved, and give "
                "the stream another name if its topic was made anew",
            )
            return
        names = sorted({entry.key.split("/")[0] for entry in self._store.list("") if "/partition=" in entry.key})
        self._found(
            f"no such stream {stream.name!r}",
            stream.source,
            f"correct the name or the source; streams there: {', '.join(names) or 'none'}",
        )

    def _found(self, what: str, where: str, then: str) -> None:
        self.findings.append(Finding(f"{self.stream.name}: {what}", where, then))
