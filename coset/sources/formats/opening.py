"""The formats of landed files: how a file of each is named and told, and its values and keys are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pyarrow as pa

from coset.sources.file_columns import arrow_schema, type_named
from coset.sources.files import Files
from coset.sources.formats.avro import AvroRows
from coset.sources.formats.change_events import ChangeLines, ChangeRecords, changes_have_values
from coset.sources.formats.compressed import ENDINGS
from coset.sources.formats.json_lines import JsonRows, UsableLines, declared_schema, undeclarable
from coset.sources.formats.keys_beside import KEY, AvroKeys, JsonKeys, KeyedRows, ParquetKeys
from coset.sources.formats.landed_file import Counted, LandedFile
from coset.sources.formats.parquet import ParquetRows
from partitioning.errors import Finding
from partitioning.model.stream_rules import columns_beside
from partitioning.model.streams import Column, Format, Stream
from partitioning.model.task_engine import USUAL, TaskMemory

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
    match stream.format:
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
            declared = stream.columns.items()
            wanted = columns_beside(stream) or tuple(stream.columns)
            columns = tuple(Column(each, type_named(kind) or kind) for each, kind in declared if each in wanted)
            return JsonKeys(source, name, arrow_schema(columns))
        case Format.BYTES:
            raise AssertionError(stream)


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


def undeclared(stream: Stream) -> Iterator[Finding]:
    """What is wrong with the declared columns of a stream."""
    if stream.columns:
        have_values = partial(changes_have_values, typed=stream.format.has_types)
        yield from undeclarable(stream, have_values if stream.changes else None)
