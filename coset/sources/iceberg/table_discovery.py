"""Discovery of Iceberg tables: the rows that came and went by snapshots behind what was read, by the buckets of keys.

The rows of a bucket are counted: first those of the snapshot that was read first, by the age of its files, then what
each later one changed: the rows that it took away, then those that it added. A file's name orders its rows among these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from coset.sources.file_columns import UnknownType, columns_of
from coset.sources.files import Files, version
from coset.sources.formats.landed_file import OFFSET_TYPE, Unreadable
from coset.sources.iceberg.data_files import WRITE_IDS, DataFile, ids_in
from coset.sources.iceberg.declared_tables import KEYS, NO_KEY, format_of, loaded
from coset.sources.iceberg.named_catalogue import catalogue_errors
from coset.sources.iceberg.snapshots import FoundRows, History, ReadSnapshot
from coset.sources.plain_arrays import bare_schema
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Forget, Then
from partitioning.documents.store import at_once
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.failure import together
from partitioning.model.offsets import Span
from partitioning.model.placement import KeyFormat
from partitioning.model.read_ends import NOTHING, End, Ends
from partitioning.model.sources import FOLDER, IcebergSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import DELETED, PART, Column, Discovered, DiscoveredPartition, InputFile, Stream
from partitioning.packed_rows import PackedRows
from partitioning.values import replace

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def discover(stream: Stream, source: IcebergSource, ends: Ends = NOTHING) -> Discovered:
    """What was added to a table behind `ends`, and its columns.

    Raises Refused, with all findings, if the table is missing, was created anew, or cannot be read by buckets as
    declared, or if rows went, or went unseen; Unreachable if the catalogue or the store does not answer.
    """
    where = source.uri(stream.name)
    with catalogue_errors(where, AGAIN):
        return _Discovery(stream, loaded(stream, source, where), where, ends).run()


def columns_now(stream: PlannedStream, source: IcebergSource) -> PlannedStream:
    """A stream as a batch planned it, with the columns that its table has now: those of then, if there is another table
    by now, or none. One that came since is null in its files.

    Raises Refused and Unreachable as `discover`.
    """
    where = source.uri(stream.name)
    with catalogue_errors(where, AGAIN):
        try:
            table = loaded(stream.declared, source, where)
        except Refused as refusal:
            if any(found.kind is not Kind.TOPIC_UNKNOWN for found in refusal.findings):
                raise
            return stream
    if not stream.ids or not stream.topic.startswith(str(table.metadata.table_uuid)):
        return stream
    now, names = _Discovery(stream.declared, table, where, NOTHING), {each: name for name, each in stream.ids.items()}
    lacking = (each.name for each in now.columns if names.get(now.ids.get(each.name, 0)) in {None, *stream.lacking})
    lacks = tuple(name for name in lacking if name in now.ids)
    return replace(stream, columns=now.columns, ids=now.ids, required=now.required, lacking=lacks)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file as it was found, with the columns of now that it has."""

    size: int
    etag: str
    found: FoundRows
    columns: frozenset[str]

    def starting(self, at: int) -> InputFile:
        """It as a plan has it, if its rows are counted from here on."""
        found, end = self.found, at + self.found.count
        where = found.path, self.size, self.etag, at, end
        return InputFile(*where, snapshot=found.snapshot, rows=found.rows, gone=found.gone)


class _Discovery:
    """The discovery of one table."""

    def __init__(self, stream: Stream, table: Table, where: str, ends: Ends) -> None:
        self._stream = stream
        self._table = table
        self._where = where
        self._before = ends.stream(stream.name)
        self._anew = Forget(ends.pipeline, stream.name)
        self._uuid, *taken = self._before.topic.split() if self._before and self._before.topic else [""]
        was = self._before.declared if self._before else stream
        # A batch that reads it whole would need its rows of then.
        self._goes_on = was.table is stream.table and not (self._before and ends.is_read_whole(stream))
        read = ReadSnapshot(*map(int, taken)) if taken else None
        self._history = History(table, where, ends.pipeline, stream.name, read, changing=stream.table)
        self._store = Files()
        self._base = lru_cache(None)(lambda snapshot: self._by_partition(self._history.base(snapshot)))
        self._since = lru_cache(None)(lambda anchor: self._by_partition(self._history.since(anchor)))
        self._buckets = lru_cache(None)(self._bucket_field)

    def run(self) -> Discovered:
        stream, uuid = self._stream, str(self._table.metadata.table_uuid)
        if findings := [*self._table_findings(uuid), *self._column_findings()]:
            raise Refused(*findings)
        listed = {number: self._listed(number) for number in range(stream.partitions)}
        opened = at_once(self._opened, [file for _, files in listed.values() for file in files])
        if errors := [each for each in opened if isinstance(each, CosetError)]:
            raise together(errors)
        found = iter([each for each in opened if isinstance(each, _Opened)])
        lacking = set[str]()
        partitions = list[DiscoveredPartition]()
        for number, (begun, files) in listed.items():
            some = [next(found) for _ in files]
            lacking.update(name for each in some for name in self._ids if name not in each.columns)
            partitions.append(self._partition(number, begun, some))
        rows = PackedRows.of(DiscoveredPartition, partitions)
        lacks = tuple(sorted(lacking))
        now = self._history.current
        read_up_to = f"{uuid} {now.snapshot_id} {now.sequence_number or 0}" if now else uuid
        return Discovered(stream.name, self.columns, rows, lacks, self.required, read_up_to, ids=self.ids)

    def _partition(self, number: int, begun: InputFile | None, some: Sequence[_Opened]) -> DiscoveredPartition:
        end, current = self._end(number), self._history.current
        files, at = [begun] if begun else [], begun.end if begun else end.end if end and self._is_anchored(end) else 0
        for each in some:
            files.append(each.starting(at))
            at = files[-1].end
        unread = [file for file in files if end is None or file.end > end.end]
        read = Span(min(end.beginning, end.end), end.end) if end else None
        first = next((file.snapshot for file in unread if file.start >= (end.end if end else 0)), None)
        landed = next((each.timestamp_ms for each in self._table.snapshots() if each.snapshot_id == first), None)
        when = datetime.fromtimestamp(landed / 1000, UTC) if landed else None
        return DiscoveredPartition(number, tuple(unread), read, when, current.snapshot_id if current else -1)

    def _end(self, number: int) -> End | None:
        return self._before.end(number) if self._before else None

    @staticmethod
    def _is_anchored(end: End) -> bool:
        """Whether it is known up to which snapshot or file a partition was read."""
        return end.epoch != -1 or bool(end.files)

    def _listed(self, number: int) -> tuple[InputFile | None, Sequence[FoundRows]]:
        """The files of a partition behind those that were read, and the one in which the last batch ended, if so."""
        end, current = self._end(number), self._history.current
        if end is None or not self._is_anchored(end):
            return None, self._base(current.snapshot_id).get(number, ()) if current else ()
        if end.epoch != -1:
            return None, self._since(end.epoch).get(number, ())
        last = end.files[-1]
        rest = self._by_partition(self._history.after(last.snapshot, last.path))
        files = [*rest.get(number, ()), *self._since(last.snapshot).get(number, ())]
        return last if last.end > end.end else None, files

    def _by_partition(self, files: Sequence[FoundRows]) -> dict[int, list[FoundRows]]:
        found = defaultdict[int, list[FoundRows]](list)
        for file in files:
            found[self._partition_of(file)].append(file)
        return found

    def _partition_of(self, file: FoundRows) -> int:
        """The partition of a file. A bucket without keys is the first one's."""
        place = self._buckets(file.file.spec_id or 0)
        return 0 if place is None else (file.file.partition[place] or 0) % self._stream.partitions

    def _bucket_field(self, number: int) -> int | None:
        """Which field of a partition spec is the bucket of the key; None if there is one partition anyway. Raises
        Refused if buckets do not lie as the stream's partitions are declared."""
        from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

        stream, spec = self._stream, self._table.specs()[number]
        if stream.partitions == 1:
            return None
        counts = list[int]()
        for place, field in enumerate(spec.fields):
            if isinstance(field.transform, BucketTransform) and field.source_id == self._ids[stream.key]:
                if field.transform.num_buckets % stream.partitions == 0:
                    return place
                counts.append(field.transform.num_buckets)
        then: Then = "declare partitions=1, which fits any table"
        if counts:
            then = f"declare partitions={counts[0]}, or a divisor of it; {then}"
        else:
            then = (
                f"{then}; or let it be partitioned by bucket({stream.partitions}, {stream.key}), and rewrite its files"
            )
        if self._before:
            # The snapshots behind what was read have these files for good, and its rows were counted otherwise.
            then = f"{then}; then begin anew with it: ", self._anew
        shown = ", ".join(f"{field.transform}({self._name(field.source_id)})" for field in spec.fields)
        what = f"files of the table lie by {shown or 'no partition'}, and {stream.partitions} buckets are declared"
        raise Refused(self._found(Kind.PARTITIONS, what, then, partitions=stream.partitions, spec=number))

    def _name(self, number: int) -> str:
        return next((name for name, each in self._ids.items() if each == number), str(number))

    def _opened(self, file: FoundRows) -> _Opened | CosetError:
        """What a file holds. An error if it is not what the table says."""
        data = file.file
        repair = "let the table's engine repair it, and begin anew with it if it cannot: "
        unread = "keep snapshots until a batch has read the next ones, and begin anew with the table: "
        then = unread if file.gone else repair, self._anew
        try:
            if data.file_format.value != "PARQUET":
                raise Unreadable(f"it is {data.file_format.value}, and only Parquet is read", "let it be rewritten")
            if not file.path.startswith(("s3://", FOLDER)):
                raise Unreadable("it lies neither in S3 nor in a folder", "move the table there")
            with reaching("the file cannot be opened", file.path, then), self._store.open(file.path) as source:
                size, etag = version(file.path, source)
                held = DataFile(source, self.ids)
                rows, columns = held.facts().rows, held.schema.names
                if not held.says_ids:
                    self._check_names(held.columns)
        except FileNotFoundError:
            return Refused(self._found(Kind.FILE_GONE, "the file is gone", then, at=file.path, file=file.path))
        except Unreadable as error:
            return Refused(self._found(Kind.FILE_UNREADABLE, str(error), error.then, at=file.path, file=file.path))
        except CosetError as error:
            return error
        if (size, rows) != (data.file_size_in_bytes, data.record_count):
            said = f"{data.file_size_in_bytes} bytes and {data.record_count} rows, and it has {size} and {rows}"
            what = f"the table says that the file has {said}"
            return Refused(self._found(Kind.FILE_CHANGED, what, then, at=file.path, file=file.path))
        return _Opened(size, etag, file, frozenset(columns))

    def _check_names(self, columns: Iterable[str]) -> None:
        """Raise Unreadable if the columns of a file without ids are not those of now that have their names."""
        mapping = self._table.metadata.name_mapping()
        mapped = {name: each.field_id for each in mapping or () for name in each.names}
        if mapping is None:
            what = "its columns have no ids, as those of files that were added to a table, and not written by it"
            raise Unreadable(what, WRITE_IDS)
        if other := next((name for name in columns if mapped.get(name) != self._ids.get(name)), None):
            raise Unreadable(f"its columns have no ids, and {other!r} has another name by now", WRITE_IDS)

    @cached_property
    def _schema(self) -> Schema:
        return self._table.schema()

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {field.name: field.field_id for field in self._schema.fields}

    @cached_property
    def _arrow(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415  an extra

        return schema_to_pyarrow(self._schema)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The ids of the columns and of their parts, by their names."""
        return ids_in(self._schema)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The columns that no row lacks."""
        said = {self._stream.offset, *([DELETED] if self._stream.table else [])}
        return tuple(sorted({*said, *(field.name for field in self._schema.fields if field.required)}))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns, with the rows' positions. A key of whole numbers is one of long ones: so it is hashed."""
        fields = [
            field.with_type(pa.int64()) if field.name == self._stream.key and field.type == pa.int32() else field
            for field in bare_schema(self._arrow)
        ]
        columns = columns_of(pa.schema(fields)).columns
        deleted = [Column(DELETED, "BOOLEAN")] if self._stream.table else []
        return (*columns, *deleted, Column(self._stream.offset, OFFSET_TYPE))

    def _table_findings(self, uuid: str) -> Iterator[Finding]:
        before = self._before
        if before is None:
            return
        if self._uuid not in ("", uuid):
            what = f"the table was made anew: it has the uuid {uuid}, and {self._uuid} was read before"
            then: Then = "give the new table another stream, or begin anew with it: ", self._anew
            yield self._found(Kind.STREAM_RESET, what, then, topic=uuid, read=self._uuid)
        elif not self._goes_on:
            what = "it was read as a stream" if not before.declared.table else "it was read as a table"
            if before.declared.table and self._stream.table:
                what = "the last batch did not read it, so what was kept of it is gone"
            yield self._found(Kind.STREAM_RESET, what, ("declare it so, or begin anew with it: ", self._anew))
        elif self._stream.table and any(end.end and not self._is_anchored(end) for end in before.ends):
            what = "it is forgotten which of its snapshots was read, so rows may have gone unseen"
            yield self._found(Kind.STREAM_RESET, what, ("begin anew with it: ", self._anew))
        if before.declared.partitions != self._stream.partitions:
            was, now = before.declared.partitions, self._stream.partitions
            what = f"its rows were counted by {was} buckets, and {now} are declared"
            then = (
                f"declare partitions={was}, which any multiple of {was} buckets fits; or begin anew with it: ",
                self._anew,
            )
            yield self._found(Kind.PARTITIONS, what, then, partitions=now, declared=was)

    def _column_findings(self) -> Iterator[Finding]:
        stream, types = self._stream, {field.name: str(field.field_type) for field in self._schema.fields}
        wanted = KEYS[stream.key_format]
        if stream.key not in types:
            then = f"declare the right one; there are {', '.join(types)}"
            yield self._found(Kind.STREAM_COLUMNS, f"there is no key column {stream.key!r}", then, name=stream.key)
        elif not types[stream.key].startswith(wanted):
            kind = types[stream.key]
            fits = format_of(kind)
            what = f"key column {stream.key!r} is {kind}, and key_format={stream.key_format.value!r} is declared"
            then = f"declare key_format={fits.value!r}" if fits else self._other_key()
            yield self._found(Kind.STREAM_COLUMNS, what, then, name=stream.key, type=kind)
        if clash := next((name for name in types if name.lower() == stream.offset.lower()), None):
            what = f"column {clash!r} of the table has the name that the positions of rows have"
            yield self._found(Kind.STREAM_COLUMNS, what, 'declare offset="_position", or another name', name=clash)
        if stream.table and (clash := next((name for name in types if name.lower() == DELETED), None)):
            what = f"column {clash!r} of the table has the name that says which rows went"
            yield self._found(Kind.STREAM_COLUMNS, what, "let the table's engine rename it", name=clash)
        for name, number in self.ids.items():
            if self._schema.find_field(number).initial_default is not None:
                what = (
                    f"column {name.replace(PART, '.')!r} has a value in rows of before it was added, which is not read"
                )
                then = "copy its rows to a table that has the column from the start, and read that as another stream"
                yield self._found(Kind.STREAM_COLUMNS, what, then, name=name)
        try:
            self.columns  # noqa: B018  to see whether there is a type for each
        except (UnknownType, TypeError, ValueError) as error:
            what = f"a column has no type that DuckDB knows: {error}"
            yield self._found(Kind.STREAM_COLUMNS, what, "leave it out of the table that is read")

    def _other_key(self) -> str:
        """What to do about a key of a type that no key has."""
        key = self._stream.key
        others = ((each.name, format_of(str(each.field_type))) for each in self._schema.fields)
        other, fits = next(((name, fits) for name, fits in others if fits), ("", None))
        if self._stream.table or fits is None:
            return f"{NO_KEY}; let the table's engine add one, as CAST({key} AS STRING)"
        words = f", key_format={fits.value!r}" * (fits is not KeyFormat.STRING)
        return f"declare key={other!r}, partitions=1{words}, and behind it .rekey('{key}_key', sql='{key}::VARCHAR')"

    def _found(self, kind: Kind, what: str, then: Then, at: str = "", **values: object) -> Finding:
        values = {"stream": self._stream.name, **values}
        return Finding.of(kind, f"{self._stream.name}: {what}", at or self._where, then, **values)
