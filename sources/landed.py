"""Landed streams: what lies in the folders of Kafka Connect's S3 sink, checked without reading the records.

Names and Parquet footers are enough: the offset column's statistics must say what the file's name says. Only
a file without statistics has its offset column read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from partitioning.documents.store import Entry, S3Store
from partitioning.errors import Finding, Refused, Unreachable
from partitioning.model.gaps import Explained, explained, next_step
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile, Stream
from partitioning.sections import cut
from partitioning.values import replace
from sources.evolution import Evolution
from sources.file_columns import FileColumns, UnknownType, columns_of, type_named
from sources.s3 import AGAIN, filesystem, is_denied, may_pass, split, store_error

_FILE = re.compile(
    r"partition=(?P<folder>0|[1-9][0-9]*)/(?P<stream>[^/+]+)\+(?P<partition>0|[1-9][0-9]*)\+(?P<start>[0-9]{10,19})"
    r"(\.[a-z0-9]+)?\.parquet"  # the sink names the codec, too: .snappy.parquet
)
_READ_AT_ONCE = 16

_OFFSET_TYPES = ("BIGINT",)
_LAND_AGAIN = "remove the file and land it again"
_SAY_SPARSE = 'if its topic is compacted or transactional, declare offsets="sparse"'


@dataclass(frozen=True, slots=True)
class _Named:
    """A file as its listing shows it."""

    uri: str
    entry: Entry
    partition: int
    start: int


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a file's footer says; `first` and `last` offset are None in a file without records."""

    columns: FileColumns
    rows: int
    first: int | None
    last: int | None


def discover(streams: Sequence[Stream], published: Plan | None = None) -> tuple[Discovered, ...]:
    """What has arrived of each stream: its columns, and the files of each declared partition, by offset.

    `published` is the plan of the last published batch, if there is one. Raises Refused, with all findings, if
    anything that lies there is not what a sink writes: offsets with a gap, an overlap or a duplicate, names that
    disagree with contents, files that cannot be read, or columns that do not fit the declaration or each other.
    Raises Unreachable if the store does not give files.
    """
    findings, unreachable = list[Finding](), list[Finding]()
    read = published.ranges() if published else ()
    store = filesystem()
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        discovered = tuple(_Discovery(stream, store, read, findings, unreachable).run(pool) for stream in streams)
    # What was not read looks like a gap, so nothing can be said of the others.
    if unreachable:
        raise Unreachable(*unreachable)
    if findings:
        raise Refused(*findings)
    return discovered


class _Discovery:
    """The discovery of one stream."""

    def __init__(
        self,
        stream: Stream,
        store: FileSystem,
        read: Sequence[OffsetRange],
        findings: list[Finding],
        unreachable: list[Finding],
    ) -> None:
        self._stream = stream
        self._store = store
        self._read_before = [offsets for offsets in read if offsets.partition.stream == stream.name and offsets.end]
        self._findings = findings
        self._unreachable = unreachable
        # Partitions with a file of which no more can be said: what is missing there need not be a gap.
        self._doubtful: set[int] = set()

    def run(self, pool: ThreadPoolExecutor) -> Discovered:
        stream = self._stream
        named = self._named()
        footers = list(zip(named, pool.map(self._footer, named), strict=True))
        read = [(file, footer) for file, footer in footers if footer is not None]
        evolution = self._columns(read)
        files: dict[int, list[InputFile]] = {number: [] for number in range(stream.partitions)}
        for file, footer in read:
            if footer.first is not None and footer.last is not None:
                self._check_offsets(file, footer, footer.first, footer.last)
                end = footer.last + 1
                missing = end - footer.first - footer.rows if self._stream.sparse else 0
                pinned = InputFile(file.uri, file.entry.size, file.entry.etag, footer.first, end, missing)
                files[file.partition].append(pinned)
        partitions = []
        for number, listed in files.items():
            listed.sort(key=lambda file: (file.start, file.end, file.path))
            if number not in self._doubtful:
                self._check_sequence(number, listed)
            partitions.append(DiscoveredPartition(number, tuple(listed)))
        columns = evolution.columns, tuple(partitions), evolution.lacking, evolution.never_null
        return Discovered(stream.name, *columns)

    def _named(self) -> list[_Named]:
        """The stream's files whose names can be read; findings for all others."""
        stream = self._stream
        store = S3Store(stream.source)
        # A key that ends in a slash is a folder's marker; it holds no records.
        entries = [entry for entry in store.list(f"{stream.name}/partition=") if not entry.key.endswith("/")]
        if not entries and self._read_before:
            ends = cut([f"{offsets.partition} up to offset {offsets.end}" for offsets in self._read_before])
            self._found(
                f"no file is left of it, and it was read before: {ends}",
                f"{stream.source.rstrip('/')}/{stream.name}/",
                "land what comes next, from these offsets on; correct the source if the files were moved, and give "
                "the stream another name if its topic was made anew",
            )
        elif not entries:
            names = sorted({entry.key.split("/")[0] for entry in store.list("") if "/partition=" in entry.key})
            self._found(
                f"no such stream {stream.name!r}",
                stream.source,
                f"correct the name or the source; streams there: {', '.join(names) or 'none'}",
            )
        return [file for entry in entries if (file := self._parse(entry)) is not None]

    def _parse(self, entry: Entry) -> _Named | None:
        stream, uri = self._stream, f"{self._stream.source.rstrip('/')}/{entry.key}"
        match = _FILE.fullmatch(entry.key.removeprefix(f"{stream.name}/"))
        if match is None:
            wanted = f"partition=<n>/{stream.name}+<n>+<first offset, 10 digits>.parquet"
            self._found("the file's name cannot be read", uri, f"name it {wanted}, or remove it")
            return None
        folder, partition = int(match["folder"]), int(match["partition"])
        before = len(self._findings)
        if match["stream"] != stream.name:
            self._found(
                f"the file's name says stream {match['stream']!r}, its folder {stream.name!r}", uri, _LAND_AGAIN
            )
        if folder != partition:
            self._found(f"the file's name says partition {partition}, its folder {folder}", uri, _LAND_AGAIN)
        if folder >= stream.partitions:
            what = f"partition {folder} is beyond the {stream.partitions} partitions that are declared"
            self._found(what, uri, "declare the topic's partition count; if it has fewer now, move the old files away")
        if len(self._findings) > before:
            return None
        return _Named(uri, entry, folder, int(match["start"]))

    def _footer(self, file: _Named) -> _Footer | None:
        """Read a file's footer; None and a finding if that cannot be done."""
        try:
            with self._store.open_input_file("/".join(split(file.uri))) as source:
                parquet = pq.ParquetFile(source)
                columns = columns_of(parquet.schema_arrow.remove_metadata())
                rows = parquet.metadata.num_rows
                offset = self._stream.offset
                # A missing or mistyped offset column is reported with the other columns.
                if rows == 0 or Column(offset, _OFFSET_TYPES[0]) not in columns.columns:
                    return _Footer(columns, rows, None, None)
                return _Footer(columns, rows, *(_statistics(parquet, offset) or self._read(parquet, file)))
        except (pa.ArrowException, OSError, UnknownType) as error:
            self._doubtful.add(file.partition)
            self._unread(file.uri, error)
            return None

    def _unread(self, uri: str, error: Exception) -> None:
        said = str(error).partition("\n")[0]
        if isinstance(error, FileNotFoundError) or may_pass(error):
            self._unreachable.append(Finding(f"the store did not give the file: {said}", uri, AGAIN))
        elif is_denied(error):
            self._findings.extend(store_error(error, "the store did not give the file", uri, AGAIN).findings)
        elif isinstance(error, UnknownType):
            self._found(f"{said}, a type that DuckDB does not have", uri, "land the column in another type")
        else:
            self._found(f"the file is truncated or no Parquet: {said}", uri, _LAND_AGAIN)

    def _read(self, parquet: pq.ParquetFile, file: _Named) -> tuple[int | None, int | None]:
        """First and last offset, from the records themselves."""
        offsets = parquet.read(columns=[self._stream.offset]).column(0)
        if offsets.null_count:
            self._doubtful.add(file.partition)
            self._found(f"{offsets.null_count} records have no offset", file.uri, _LAND_AGAIN)
            return None, None
        smallest = pc.min_max(offsets)
        return smallest["min"].as_py(), smallest["max"].as_py()

    def _check_offsets(self, file: _Named, footer: _Footer, first: int, last: int) -> None:
        if file.start != first:
            self._found(f"the file's name says first offset {file.start}, its records {first}", file.uri, _LAND_AGAIN)
        span = last + 1 - first
        if span < footer.rows or (span > footer.rows and not self._stream.sparse):
            what = "a gap" if span > footer.rows else "a duplicate"
            then = _LAND_AGAIN if span < footer.rows else f"{_LAND_AGAIN}, or {_SAY_SPARSE}"
            self._found(f"{footer.rows} records have the offsets [{first},{last + 1}): {what}", file.uri, then)

    def _check_sequence(self, number: int, files: Sequence[InputFile]) -> None:
        partition = StreamPartition(self._stream.name, number)
        if not files:
            return
        one = files[0]
        for other in files[1:]:
            where = f"{one.path} and {other.path}"
            if (one.start, one.end) == (other.start, other.end):
                offsets = OffsetRange(partition, one.start, one.end)
                self._found(f"duplicate: two files hold {offsets}", where, "remove one of them")
            elif one.end > other.start:
                offsets = OffsetRange(partition, other.start, min(one.end, other.end))
                self._found(f"overlap: two files hold {offsets}", where, "remove one of them and land the rest again")
            elif one.end < other.start:
                hole = OffsetRange(partition, one.end, other.start)
                if explained(self._stream, hole, ()) is Explained.NOBODY:
                    self._found(f"gap: no file holds {hole}", where, next_step(hole))
            one = max(one, other, key=lambda file: file.end)

    def _columns(self, files: Sequence[tuple[_Named, _Footer]]) -> Evolution:
        """The columns of all files with records, with findings for what does not fit."""
        stream = self._stream
        evolution = Evolution((), (), frozenset((stream.key, stream.offset)), self._casts())
        in_order = [(file, footer) for file, footer in files if footer.rows] or files
        for file, footer in sorted(in_order, key=lambda read: (read[0].partition, read[0].start)):
            self._findings.extend(
                replace(finding, what=f"{stream.name}: {finding.what}")
                for finding in evolution.add(file.uri, file.partition, footer.columns)
            )
        if in_order:
            first, types = in_order[0][0], {column.name: column.type for column in evolution.columns}
            self._check_column("key", stream.key, stream.key_format.column_types, types, first.uri)
            self._check_column("offset", stream.offset, _OFFSET_TYPES, types, first.uri)
            for name in stream.casts.keys() - types.keys():
                then = f"correct its name; there are {', '.join(types)}"
                self._found(f"there is no column {name!r} to cast", first.uri, then)
        return evolution

    def _casts(self) -> dict[str, str]:
        """The columns that are read as other types, by DuckDB's names of these."""
        casts = {name: type_named(kind) for name, kind in self._stream.casts.items()}
        for name in (name for name, kind in casts.items() if kind is None):
            what = f"column {name!r} is to be cast to {self._stream.casts[name]!r}, which is no type"
            self._found(what, f"stream {self._stream.name!r}", "name a type as DuckDB has it")
        return {name: kind for name, kind in casts.items() if kind is not None}

    def _check_column(self, noun: str, name: str, types: Sequence[str], columns: dict[str, str], uri: str) -> None:
        wanted = " or ".join(types)
        if name not in columns:
            listed = ", ".join(columns)
            self._found(f"there is no {noun} column {name!r}", uri, f"declare the right one; there are {listed}")
        elif columns[name] not in types:
            then = "declare the column and format that the producer uses"
            form = f" under key format {self._stream.key_format.value!r}" if noun == "key" else ""
            self._found(f"{noun} column {name!r} is {columns[name]}, not {wanted}{form}", uri, then)

    def _found(self, what: str, where: str, then: str) -> None:
        self._findings.append(Finding(f"{self._stream.name}: {what}", where, then))


def _statistics(parquet: pq.ParquetFile, column: str) -> tuple[int, int] | None:
    """Smallest and largest value of a column as the footer has them; None if it does not."""
    groups = [group for group in _groups(parquet, column) if group.num_values]
    statistics = [group.statistics for group in groups]
    if not all(group is not None and group.has_min_max and group.null_count == 0 for group in statistics):
        return None
    return min(group.min for group in statistics), max(group.max for group in statistics)


def _groups(parquet: pq.ParquetFile, column: str) -> Iterator[pq.ColumnChunkMetaData]:
    names = [parquet.schema.column(number).path for number in range(len(parquet.schema))]
    for group in range(parquet.metadata.num_row_groups):
        yield parquet.metadata.row_group(group).column(names.index(column))
