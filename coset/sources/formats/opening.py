"""The formats of landed files: how a file of each is named and told, and its values and keys are read. Keys in files
beside those of values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import FileColumns, arrow_schema, columns_of, type_named
from coset.sources.files import Files
from coset.sources.formats.avro import AvroRows
from coset.sources.formats.change_events import ChangeLines, ChangeRecords, changes_have_values
from coset.sources.formats.compressed import ENDINGS
from coset.sources.formats.json_lines import JsonRows, UsableLines, declared_schema, undeclarable
from coset.sources.formats.landed_file import Counted, FileFacts, LandedFile, Unreadable
from coset.sources.formats.parquet import ParquetRows
from coset.sources.reader import WHY
from partitioning.errors import Finding
from partitioning.model.stream_rules import columns_beside
from partitioning.model.streams import Column, Format, Stream
from partitioning.model.task_engine import USUAL, TaskMemory

# What a key that is no record is called by the sinks' writer of Parquet, and where nothing else calls it.
KEY = "key"
_EVERY = 2**63 - 1
_LAND_BOTH = "plan again if the sink was just writing them; else remove both files and land them again"


class KeyedRows:
    """A file of values with the columns of its keys, which hide others of their names. Its records count from the first
    on, so all of them are read."""

    def __init__(self, values: LandedFile, keys: LandedFile, names: Sequence[str]) -> None:
        self._values = values
        self._keys = keys
        self._names = names

    @cached_property
    def _of_keys(self) -> pa.Schema:
        there = self._keys.schema
        if missing := [name for name in self._names if name not in there.names]:
            what = f"its file of keys has the columns {', '.join(there.names)}, and not {', '.join(missing)}"
            raise Unreadable(what, "name the columns of the key as they are there")
        return pa.schema([there.field(name) for name in self._names])

    @cached_property
    def schema(self) -> pa.Schema:
        landed = [field for field in self._values.schema if field.name not in self._names]
        return pa.schema([*self._of_keys, *landed])

    def facts(self) -> FileFacts:
        facts, keys = self._values.facts(), self._keys.facts().rows
        if facts.rows != keys:
            raise _unlike(facts.rows, keys)
        found, landed = columns_of(self._of_keys), facts.columns
        columns = tuple(column for column in landed.columns if column.name not in self._names)
        required = found.required | {name for name in landed.required if name not in self._names}
        return FileFacts(
            FileColumns((*found.columns, *columns), required), facts.rows, facts.first, facts.last, facts.without_offset
        )

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        wanted = [field.name for field in self._of_keys if field.name in columns]
        there = set(self._values.schema.names)
        # A column of values says how many there are.
        landed = [name for name in columns if name in there and name not in self._names] or self._values.schema.names[
            :1
        ]
        values = self._values.batches(landed, 0, _EVERY)
        if not wanted:
            yield from values
            return
        keys, left, before = self._keys.batches(wanted, 0, _EVERY), None, 0
        for records in values:
            parts, missing = list[pa.RecordBatch](), len(records)
            while missing:
                left = next(keys, None) if left is None or not len(left) else left
                if left is None:
                    raise _unlike(None, before + len(records) - missing)
                parts.append(left.slice(0, missing))
                missing -= len(parts[-1])
                left = left.slice(len(parts[-1]))
            before += len(records)
            yield _beside(records, pa.Table.from_batches(parts, self._wanted(wanted)), columns)
        if (left is not None and len(left)) or any(map(len, keys)):
            raise _unlike(before, None)

    def _wanted(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._of_keys.field(name) for name in names])


def _beside(records: pa.RecordBatch, keys: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
    """The records with these columns of keys; a record that cannot be used has none."""
    aside = records.column(WHY.name).is_valid() if WHY.name in records.schema.names else None
    found = {name: records.column(name) for name in records.schema.names if name not in keys.column_names}
    for name in keys.column_names:
        key = keys[name].combine_chunks()
        found[name] = key if aside is None else pc.if_else(aside, pa.scalar(None, key.type), key)
    ordered = [name for name in columns if name in found]
    ordered += [name for name in found if name not in ordered]
    return pa.RecordBatch.from_arrays([found[name] for name in ordered], names=ordered)


def _unlike(values: int | None, keys: int | None) -> Unreadable:
    more = [f"{count:,}" if count is not None else "more" for count in (values, keys)]
    return Unreadable(f"it has {more[0]} records, and its file of keys {more[1]}", _LAND_BOTH)


class AvroKeys(AvroRows):
    """Keys in Avro. Those that are no records become the one column of such."""

    def __init__(self, source: pa.NativeFile, name: str) -> None:
        super().__init__(source, "")
        self._name = name

    @cached_property
    def avro_schema(self) -> Any:
        written = super().avro_schema
        # The sinks refuse records without a key, also where its schema allows them.
        branches = [each for each in written if each != "null"] if isinstance(written, list) else [written]
        if len(branches) == 1 and isinstance(branches[0], dict) and branches[0].get("type") == "record":
            return branches[0]
        return {"type": "record", "name": "Keys", "fields": [{"name": self._name, "type": written}]}

    def records_of(self, block: Any) -> list[dict[str, Any]]:
        records = super().records_of(block)
        return [each if isinstance(each, dict) else {self._name: each} for each in records]


class JsonKeys(JsonRows):
    """Keys as JSON lines. Those that are no objects become the one column of such."""

    def __init__(self, source: pa.NativeFile, name: str, schema: pa.Schema) -> None:
        super().__init__(source, "", schema)
        self._begin = b"{%b:" % json.dumps(name).encode()

    def blocks(self) -> Iterator[bytes]:
        for block in self._lines():
            lines = (line for line in block.split(b"\n") if line.strip())
            yield b"".join(
                line + b"\n" if line.lstrip().startswith(b"{") else self._begin + line + b"}\n" for line in lines
            )


class ParquetKeys:
    """Keys in Parquet, where the sinks put each into a column `key`."""

    def __init__(self, rows: ParquetRows, name: str) -> None:
        self._rows = rows
        self._name = name

    @cached_property
    def schema(self) -> pa.Schema:
        written = self._rows.schema
        if written.names != [KEY]:
            what = f"its file of keys has the columns {', '.join(written.names)}, and not {KEY}"
            raise Unreadable(what, "look whether a sink for Kafka Connect wrote it, and land its topic again")
        kind = written.field(KEY).type
        return (
            pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([written.field(KEY).with_name(self._name)])
        )

    def facts(self) -> FileFacts:
        return FileFacts(columns_of(self.schema), self._rows.facts().rows)

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches([KEY], start, end):
            keys = batch.column(KEY)
            is_record = pa.types.is_struct(keys.type)
            found = dict(zip(self.schema.names, keys.flatten() if is_record else [keys], strict=True))
            yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))


LANDED = tuple(each for each in Format if each.lands)


def open_landed(
    stream: Stream, source: pa.NativeFile, first: int, memory: TaskMemory = USUAL, keys: pa.NativeFile | None = None
) -> LandedFile:
    """A file of a stream, to be read in so much memory; `first` is the offset in its name. If keys lie in a file beside
    it, that is `keys`."""
    file = _open(stream, source, first, memory)
    if keys is not None and stream.keys:
        names = columns_beside(stream)
        named = {"name": names[0]} if len(names) == 1 else {}
        file = KeyedRows(file, open_keys(stream, stream.keys, keys, memory=memory, **named), names)
    return Counted(file, stream.offset, first) if stream.counted else file


@contextmanager
def opened(stream: Stream, files: Files, uri: str, first: int, keys: str = "") -> Iterator[LandedFile]:
    """A file of a stream by its address, with that of its keys."""
    with files.open(uri) as source, files.open(keys) if keys else nullcontext() as beside:
        yield open_landed(stream, source, first, keys=beside)


def _open(stream: Stream, source: pa.NativeFile, first: int, memory: TaskMemory) -> LandedFile:
    match stream.written_as:
        case Format.PARQUET:
            rows = ParquetRows(source, stream.offset, memory)
            return ChangeRecords(rows, stream) if stream.changes else rows
        case Format.AVRO:
            records = AvroRows(source, stream.offset)
            return ChangeRecords(records, stream) if stream.changes else records
        case Format.JSON:
            schema, parse = declared_schema(stream), ChangeLines(stream) if stream.changes else None
            if stream.sets_aside:
                return UsableLines(source, stream.offset, schema, first, dense=not stream.sparse, parse=parse)
            return JsonRows(source, stream.offset, schema, parse)
        case Format.BYTES:
            raise AssertionError(stream)
        case _ as never:
            assert_never(never)


def open_keys(
    stream: Stream, written_as: Format, source: pa.NativeFile, name: str = KEY, memory: TaskMemory = USUAL
) -> LandedFile:
    """A file of keys: the fields of keys that are records, else a column of this name. The types of JSON are those that
    the stream declares."""
    match written_as:
        case Format.PARQUET:
            return ParquetKeys(ParquetRows(source, "", memory), name)
        case Format.AVRO:
            return AvroKeys(source, name)
        case Format.JSON:
            declared = (stream.columns or {}).items()
            wanted = columns_beside(stream) or tuple(stream.columns or ())
            columns = tuple(Column(each, type_named(kind) or kind) for each, kind in declared if each in wanted)
            return JsonKeys(source, name, arrow_schema(columns))
        case Format.BYTES:
            raise AssertionError(stream)
        case _ as never:
            assert_never(never)


def begins(head: bytes) -> Format | None:
    """The format of a file by its first four bytes; None if they are of none."""
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith(b"Obj\1"):
        return Format.AVRO
    return Format.JSON if head.startswith((b"{", b"[")) else None


def endings(written_as: Format) -> str:
    """The pattern of file name endings of a format."""
    match written_as:
        case Format.PARQUET:
            return r"(\.(?!keys|headers)[a-z0-9]+)?\.parquet"  # the sink names the codec, too: .snappy.parquet
        case Format.AVRO:
            return rf"\.avro{ENDINGS}"
        case Format.JSON:
            return rf"\.jsonl?{ENDINGS}"
        case Format.BYTES:
            raise AssertionError(written_as)
        case _:
            assert_never(written_as)


def undeclared(stream: Stream) -> Iterator[Finding]:
    """What is wrong with the declared columns of a stream."""
    if stream.columns:
        have_values = partial(changes_have_values, typed=stream.written_as.has_types)
        yield from undeclarable(stream, have_values if stream.changes else None)
