"""Discovery of landed streams: what the folders of Kafka Connect's S3 sink hold, checked with the fewest reads.

A file's content must agree with its name. Its footer, or the heads of its blocks, suffice to check that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial

import duckdb
import pyarrow as pa

from coset.sources.doubles import ComparedCopies, comparing, once
from coset.sources.evolution import Evolution, with_casts
from coset.sources.file_columns import NULL_TYPE, UnknownType, arrow_has, arrow_schema, keeps_values, type_named
from coset.sources.files import Files
from coset.sources.formats.landed_file import LAND_AGAIN, OFFSET_TYPE, FileFacts, Unreadable
from coset.sources.formats.opening import open_landed, opened, undeclared
from coset.sources.known import KnownStream
from coset.sources.landed_keys import landed_columns, with_keys, with_made
from coset.sources.layouts import NO_CSV
from coset.sources.new_files import NamedFile, NewFiles
from coset.sources.s3 import AGAIN, is_denied, may_pass, store_error
from partitioning.commands import BackfillAsking, Forget, Then
from partitioning.errors import CosetError, Finding, Unreachable, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import bad_part, key_columns, key_parts
from partitioning.model.gaps import Explained, explained, next_step
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.streams import (
    Column,
    Discovered,
    DiscoveredPartition,
    InputFile,
    Layout,
    Looked,
    Stream,
)
from partitioning.packed_rows import PackedRows
from partitioning.values import replace

_READ_AT_ONCE = 16
# A cast is tried on so many files.
_TRIED = 100
# A file of at most so many bytes is fetched as a whole: so much of its end is fetched for a footer anyway.
_FOOTER = 1 << 16
# Text is the bytes of its UTF-8.
_BYTES = ("BLOB", "VARCHAR")

_WHICH = (
    "find out which of them has what the topic has, and remove the other; if the topic was made anew, give it another "
    "stream name"
)


# A file, and when it was stored.
_There = tuple[InputFile, datetime]


def discover(
    streams: Sequence[Stream], ends: Ends = NOTHING, losses: Sequence[OffsetRange] = ()
) -> tuple[Discovered, ...]:
    """What has arrived of each stream: its columns, and the files of each declared partition, by offset.

    Of what batches have read up to `ends`, only the columns and the last file are looked up; nothing else is listed or
    opened. `losses` are accepted.

    Raises Refused, with all findings, if anything there is not what a sink writes: an unexplained gap, an overlap or a
    duplicate of offsets, a name that contradicts the content, an unreadable file, or columns that do not fit the
    declaration or each other. Raises Unreachable if the store does not answer.
    """
    findings, unreachable = list[Finding](), list[Finding]()
    store = Files()
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        discovered = tuple(
            _Discovery(stream, store, KnownStream.by(stream, ends), losses, findings, unreachable).run(pool)
            for stream in streams
        )
    # An unread file looks like a gap, so gaps are not reported then.
    if unreachable:
        raise Unreachable(*unreachable)
    refuse(findings)
    return discovered


def discover_sound(stream: Stream, ends: Ends = NOTHING) -> tuple[Discovered, frozenset[int]]:
    """What has arrived of a stream in which something is wrong, and the partitions in which it is: of these nothing is
    known. Raises Unreachable if the store does not answer."""
    looked = _Discovery(stream, Files(), KnownStream.by(stream, ends), (), [], [])
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        return looked.run(pool), looked.doubtful


class _Discovery:
    """The discovery of one stream."""

    def __init__(
        self,
        stream: Stream,
        store: Files,
        known: KnownStream,
        losses: Sequence[OffsetRange],
        findings: list[Finding],
        unreachable: list[Finding],
    ) -> None:
        self._stream = stream
        self._store = store
        self._known = known
        self._losses = losses
        self._findings = findings
        self._unreachable = unreachable
        self._unreadable: set[int] = set()
        self._unsound: set[int] = set()
        # What is said of partitions whose last file is another now, and that file.
        self._replaced: dict[int, tuple[str, str]] = {}

    def run(self, pool: ThreadPoolExecutor) -> Discovered:
        if wrong := tuple(undeclared(self._stream)):
            self._findings.extend(wrong)
            self._unsound.update(range(self._stream.partitions))
            return Discovered(self._stream.name, (), ())
        new = NewFiles(self._stream, self._known)
        named = new.find()
        if new.findings:
            # An object that is no file of the stream may be one of any partition.
            self._findings.extend(new.findings)
            self._unsound.update(range(self._stream.partitions))
        unread = [file for file in named if file.pinned is None]
        opened = zip(unread, pool.map(self._facts, unread), strict=True)
        read = [(file, facts) for file, facts in opened if facts is not None]
        evolution = self._columns(read)
        there: dict[int, list[_There]] = {number: [] for number in range(self._stream.partitions)}
        for file in named:
            if file.pinned is not None:
                there[file.partition].append((file.pinned, file.stored))
        for file, facts in read:
            if facts.first is not None and facts.last is not None:
                with self._doubting(file.partition):
                    pinned = self._pinned(file, facts, facts.first, facts.last)
                there[file.partition].append((pinned, file.stored))
        partitions = (self._partition(number, files) for number, files in there.items())
        rows = PackedRows.of(DiscoveredPartition, partitions)
        self._tell_replaced()
        columns = with_made(self._stream, with_keys(self._stream, evolution.columns))
        names = {column.name for column in landed_columns(self._stream, evolution.columns)}
        lacking = tuple(name for name in evolution.lacking if name in names)
        required = tuple(name for name in evolution.never_null if name in names)
        empty = sum(not facts.rows for _, facts in read)
        looked = Looked(empty, new.hidden, bool(empty) and not any(there.values()) and new.lies_beside())
        return Discovered(self._stream.name, columns, rows, lacking, required, "", evolution.untyped, looked)

    @property
    def doubtful(self) -> frozenset[int]:
        """The partitions in which something is wrong."""
        return frozenset(self._unreadable | self._unsound)

    @contextmanager
    def _doubting(self, partition: int) -> Iterator[None]:
        """A finding in here makes the partition doubtful."""
        before = len(self._findings)
        yield
        if len(self._findings) > before:
            self._unsound.add(partition)

    def _pinned(self, file: NamedFile, facts: FileFacts, first: int, last: int) -> InputFile:
        self._check_offsets(file, facts, first, last)
        missing = last + 1 - first - facts.rows if self._stream.sparse else 0
        keys = (file.keys_uri, file.keys.size, file.keys.etag) if file.keys else ()
        return InputFile(file.uri, file.entry.size, file.entry.etag, first, last + 1, missing, *keys)

    def _partition(self, number: int, there: list[_There]) -> DiscoveredPartition:
        """What a partition holds; if a part of it was read before, what it holds since."""
        read, end = self._known.span(number), self._known.end(number)
        stored = {file.path: at for file, at in there}
        with self._doubting(number):
            counting, doubles = self._once(number, [file for file, _ in there])
        # If the partition ends before what was read, the last file shows it.
        is_less = bool(counting) and counting[-1].end < end
        if not is_less:
            with self._doubting(number):
                self._check_last(number, [file for file, _ in there])
        if read is not None:
            counting = counting[-1:] if is_less else [file for file in counting if file.end > read.end]
        files = tuple(counting)
        unread = next((stored[file.path] for file in files if file.end > end), None)
        # Beside an unreadable file a missing offset need not be a gap.
        if number not in self._unreadable:
            with self._doubting(number):
                self._check_sequence(number, files)
        return DiscoveredPartition(number, files, read, unread, doubles=doubles)

    def _once(self, number: int, files: Sequence[InputFile]) -> tuple[list[InputFile], tuple[InputFile, ...]]:
        """Each offset in one file, and what others hold of them, with findings where these have other records."""
        counting, doubles, differences = once(files, self._compared)
        for each in differences:
            offsets = OffsetRange(StreamPartition(self._stream.name, number), each.offsets.start, each.offsets.end)
            what = f"two files hold {offsets}, and differ from offset {each.first:,} on"
            where = f"{each.one.path} and {each.other.path}"
            self._found(Kind.STREAM_TWICE, what, where, _WHICH, offsets=offsets, first=each.first)
        return counting, tuple(doubles)

    def _compared(self, one: InputFile, other: InputFile, span: Span) -> ComparedCopies:
        try:
            return comparing(self._stream, self._store)(one, other, span)
        except (pa.ArrowException, OSError, UnknownType, Unreadable) as error:
            self._unread(other.path, error)
        except duckdb.Error as error:
            what, then = f"its records cannot be compared with those of {one.path}: {error}", _WHICH
            self._found(Kind.STREAM_TWICE, what, other.path, then, other=one.path)
        except CosetError as error:
            (self._unreachable if isinstance(error, Unreachable) else self._findings).extend(error.findings)
        return ComparedCopies(span.end - span.start, None)

    def _facts(self, file: NamedFile) -> FileFacts | None:
        """What a file holds. None and a finding if that cannot be found out."""
        there = file.entry
        try:
            small = self._store.whole(file.uri, there.size, there.etag, _FOOTER)
            beside = self._store.open(file.keys_uri) if file.keys_uri else nullcontext()
            with small if small is not None else self._store.open(file.uri) as source, beside as keys:
                facts = open_landed(self._stream, source, file.start, keys=keys).facts()
        except (pa.ArrowException, OSError, UnknownType, Unreadable) as error:
            self._unreadable.add(file.partition)
            self._unread(file.uri, error)
            return None
        except CosetError as error:
            self._unreadable.add(file.partition)
            (self._unreachable if isinstance(error, Unreachable) else self._findings).extend(error.findings)
            return None
        if facts.rows and Column(self._stream.offset, NULL_TYPE) in facts.columns.columns:
            facts = FileFacts(facts.columns, facts.rows, without_offset=facts.rows)
        if facts.without_offset:
            self._unreadable.add(file.partition)
            what = f"{facts.without_offset} records have no offset"
            self._found(Kind.RECORD, what, file.uri, LAND_AGAIN, without_offset=facts.without_offset)
        return facts

    def _unread(self, uri: str, error: Exception) -> None:
        said = str(error).partition("\n")[0]
        if isinstance(error, Unreadable):
            may_be_csv = self._stream.layout is Layout.AIVEN and not self._stream.format.has_types
            then = (
                f"{error.then}; if the sink writes CSV, as it does by default, {NO_CSV}" if may_be_csv else error.then
            )
            self._found(Kind.FILE_UNREADABLE, said, uri, then)
        elif isinstance(error, FileNotFoundError) or may_pass(error):
            what = f"the store did not give the file: {said}"
            self._unreachable.append(Finding.of(Kind.STORE_UNREACHABLE, what, uri, AGAIN, file=uri))
        elif is_denied(error):
            self._findings.extend(store_error(error, "the store did not give the file", uri, AGAIN).findings)
        elif isinstance(error, UnknownType):
            what = f"{said}, a type that DuckDB does not have"
            self._found(Kind.STREAM_COLUMNS, what, uri, "land the column in another type")
        else:
            what = f"the file is truncated or no {self._stream.format.noun}: {said}"
            self._found(Kind.FILE_UNREADABLE, what, uri, LAND_AGAIN, format=self._stream.format)

    def _check_offsets(self, file: NamedFile, facts: FileFacts, first: int, last: int) -> None:
        if file.start != first:
            what = f"the file's name says first offset {file.start}, its records {first}"
            self._found(Kind.FOLDERS, what, file.uri, LAND_AGAIN, start=file.start, first=first)
        span = last + 1 - first
        if span < facts.rows or (span > facts.rows and not self._stream.sparse):
            is_gap = span > facts.rows
            what = f"{facts.rows} records have the offsets [{first},{last + 1}): a {'gap' if is_gap else 'duplicate'}"
            sparse = ', or if its topic is compacted or transactional, declare offsets="sparse"' if is_gap else ""
            self._found(Kind.STREAM_GAP, what, file.uri, f"{LAND_AGAIN}{sparse}", rows=facts.rows, first=first)

    def _check_last(self, number: int, files: Sequence[InputFile]) -> None:
        """Checks that no other file has offsets of the last read one, if that is gone: its records would be different
        ones. If it is there, they are compared."""
        last, partition = self._known.last.get(number), StreamPartition(self._stream.name, number)
        if last is None or any(file.content == last.content for file in files):
            return
        for file in files:
            if max(file.start, last.start) < min(file.end, last.end) and file.content != last.content:
                what = (
                    f"{partition} was read up to offset {self._known.end(number)} of the file {last.content[0]}, "
                    "and another file has the last of these offsets now"
                )
                self._replaced.setdefault(number, (what, file.path))
                self._unsound.add(number)

    def _tell_replaced(self) -> None:
        pipeline, stream = self._known.pipeline, self._stream.name
        # A topic that was made anew is begun anew as a whole.
        whole = len(self._replaced) == len(self._known.ends) > 1
        for number, (what, path) in self._replaced.items():
            which = None if whole else number
            then = (
                "put that file back; if the topic was made anew, give it another stream name, or begin anew with it: ",
                Forget(pipeline, stream, which),
                "; if it has the same records, go on behind them: ",
                Forget(pipeline, stream, which, keep_offsets=True),
                "; if records of it were corrected, run their batch again, then swap it in: ",
                BackfillAsking(pipeline, None, repaired=True),
            )
            self._found(Kind.STREAM_REPLACED, what, path, then, partition=StreamPartition(stream, number))

    def _check_sequence(self, number: int, files: Sequence[InputFile]) -> None:
        partition = StreamPartition(self._stream.name, number)
        if not files:
            return
        one = files[0]
        for other in files[1:]:
            if one.end < other.start:
                where = f"{one.path} and {other.path}"
                hole = OffsetRange(partition, one.end, other.start)
                if explained(self._stream, hole, self._losses, (one, other)) is Explained.NOBODY:
                    self._found(Kind.STREAM_GAP, f"gap: no file holds {hole}", where, next_step(hole), hole=hole)
            one = other

    def _columns(self, files: Sequence[tuple[NamedFile, FileFacts]]) -> Evolution:
        """The columns of all files with records. Adds findings for those that do not fit."""
        stream, known = self._stream, self._known
        keys = (stream.key_bytes,) if stream.key_bytes else key_columns(stream.key)
        fixed = frozenset((*keys, stream.offset))
        implied = {} if key_parts(stream.key) or stream.key_bytes else {stream.key: stream.key_format.column_types[0]}
        evolution = Evolution(known.columns, known.required, fixed, self._casts(), implied)
        in_order = [(file, facts) for file, facts in files if facts.rows] or list(files)
        in_order.sort(key=lambda read: (read[0].partition, read[0].start))
        found = [each for file, facts in in_order for each in evolution.add(file.uri, file.partition, facts.columns)]
        found = [*with_casts(found, evolution, partial(self._cast_reads, in_order)), *evolution.untyped_parts()]
        self._findings.extend(replace(finding, what=f"{stream.name}: {finding.what}") for finding in found)
        if in_order:
            first, types = in_order[0][0], {column.name: column.type for column in evolution.columns}
            self._check_key(types, first.uri)
            self._check_column("offset", stream.offset, (OFFSET_TYPE,), types, first.uri)
            for name in stream.cast.keys() - types.keys():
                then = f"correct its name; there are {', '.join(types)}"
                self._found(Kind.DECLARATION, f"there is no column {name!r} to cast", first.uri, then, name=name)
        return evolution

    def _cast_reads(self, files: Sequence[tuple[NamedFile, FileFacts]], name: str, kind: str) -> str:
        """What a cast reads of the files in which a column has another type; nothing if it cannot, or if a value
        would become another."""
        others = [
            file
            for file, facts in files
            if any(column.name == name and column.type != kind for column in facts.columns.columns)
        ]
        (wanted,) = arrow_schema((Column(name, kind),)).types
        try:
            for file in others[:_TRIED]:
                with opened(self._stream, self._store, file.uri, file.start, file.keys_uri) as landed:
                    batches = landed.batches([name], 0, 2**63 - 1)
                    if not all(keeps_values(records.column(name), wanted) for records in batches):
                        return ""
        except (pa.ArrowException, OSError, Unreadable):
            return ""
        return f"which reads {'them' if len(others) <= _TRIED else f'the first {_TRIED:,} of these {len(others):,}'}"

    def _casts(self) -> dict[str, str]:
        """The columns that are cast, with DuckDB's names of their types."""
        casts = {name: arrow_has(type_named(kind)) for name, kind in self._stream.cast.items()}
        for name in (name for name, kind in casts.items() if kind is None):
            what = f"column {name!r} is to be cast to {self._stream.cast[name]!r}, which is no type"
            then = "name a type as DuckDB has it, and as files have values of"
            self._found(Kind.DECLARATION, what, f"stream {self._stream.name!r}", then, name=name)
        return {name: kind for name, kind in casts.items() if kind is not None}

    def _check_key(self, columns: dict[str, str], uri: str) -> None:
        stream, parts = self._stream, key_parts(self._stream.key)
        if stream.key_bytes:
            return self._check_column("key bytes", stream.key_bytes, _BYTES, columns, uri)
        if not parts:
            self._check_column("key", stream.key, stream.key_format.column_types, columns, uri)
        for part in parts:
            made = columns.get(part)
            if made is None:
                self._check_column("key", part, (), columns, uri)
            elif finding := bad_part(f"{stream.name}: key column {part!r}", made, stream.hash, uri):
                self._findings.append(finding)

    def _check_column(self, noun: str, name: str, types: Sequence[str], columns: dict[str, str], uri: str) -> None:
        wanted = " or ".join(types)
        if name not in columns:
            listed = ", ".join(columns)
            what = f"there is no {noun} column {name!r}"
            self._found(Kind.STREAM_COLUMNS, what, uri, f"declare the right one; there are {listed}", name=name)
        elif columns[name] not in types:
            then = "declare the column and format that the producer uses"
            form = f" under key format {self._stream.key_format.value!r}" if noun == "key" else ""
            what = f"{noun} column {name!r} is {columns[name]}, not {wanted}{form}"
            self._found(Kind.STREAM_COLUMNS, what, uri, then, name=name, type=columns[name], wanted=wanted)

    def _found(self, kind: Kind, what: str, where: str, then: Then, **values: object) -> None:
        self._findings.append(
            Finding.of(kind, f"{self._stream.name}: {what}", where, then, **{"stream": self._stream.name, **values})
        )
