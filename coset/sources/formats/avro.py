"""Avro container files: the header has the columns, the head of each block its number of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.avro_types import arrow_schema_of
from coset.sources.formats.compressed import decompressed
from coset.sources.formats.landed_file import LAND_AGAIN, FileFacts, Unreadable, has_offsets

_FETCHED = 4 << 20
# Blocks are small; this many bytes of them become one batch.
_BATCH_BYTES = 4 << 20


class AvroRows:
    """An Avro file, read some blocks at a time."""

    def __init__(self, source: pa.NativeFile, offset: str) -> None:
        self._source = source
        self._offset = offset

    @cached_property
    def schema(self) -> pa.Schema:
        return arrow_schema_of(self.avro_schema)

    @cached_property
    def avro_schema(self) -> Any:
        """The parsed schema that its records were written by."""
        with self._opened() as (file, _):
            return file.writer_schema

    def facts(self) -> FileFacts:
        return self.facts_as(columns_of(self.schema))

    def facts_as(self, columns: FileColumns) -> FileFacts:
        """Read from the heads of all blocks, and the offsets in the first and the last one."""
        rows, first, last = 0, None, None
        for block in self._blocks():
            rows += block.num_records
            if block.num_records > 0:
                first, last = first or block, block
            else:
                self.records_of(block)
        if first is None or last is None or not has_offsets(columns, self._offset):
            return FileFacts(columns, rows)
        offsets = self._offsets(first) + (self._offsets(last) if last is not first else [])
        held = [offset for offset in offsets if offset is not None]
        if len(held) < len(offsets):
            return FileFacts(columns, rows, without_offset=len(offsets) - len(held))
        return FileFacts(columns, rows, min(held), max(held))

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        written = self.schema
        wanted = pa.schema([written.field(name) for name in columns if name in written.names])
        records, size = list[dict[str, Any]](), 0
        for block in self._blocks():
            records.extend(self.records_of(block))
            size += block.size
            if size >= _BATCH_BYTES:
                yield batch_of(records, wanted)
                records, size = [], 0
        if records:
            yield batch_of(records, wanted)

    def _offsets(self, block: Any) -> list[int | None]:
        return [record[self._offset] for record in self.records_of(block)]

    def records_of(self, block: Any) -> list[dict[str, Any]]:
        """The records of a block."""
        return _records(block)

    def _blocks(self) -> Iterator[Any]:
        """All blocks, decompressed. The caller decodes the records."""
        end = None
        with self._opened() as (file, content):
            while True:
                with _decoding():
                    block = next(file, None)
                if block is None:
                    break
                end = block.offset + block.size
                yield block
            # The library takes a truncated block head for the end of the file.
            content.read()
            if end is not None and end != content.tell():
                raise Unreadable("the file is truncated or no Avro: a block is cut off", LAND_AGAIN)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """The reader of blocks, and what it reads."""
        with decompressed(self._source, _FETCHED) as content:
            with _decoding():
                file = fastavro.block_reader(content)
            yield file, content


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn what the library raises for a damaged file, which may be nearly anything, into Unreadable."""
    try:
        yield
    except (OSError, MemoryError, Unreadable):
        raise
    except Exception as error:
        said = str(error) or type(error).__name__
        raise Unreadable(f"the file is truncated or no Avro: {said}", LAND_AGAIN) from error


def _records(block: Any) -> list[dict[str, Any]]:
    """The records of a block. The library reads as many as its head says, whatever is left."""
    with _decoding():
        records = list(block)
    if block.num_records < 0 or block.bytes_.read(1):
        raise Unreadable(f"a block says {block.num_records} records, and holds others", LAND_AGAIN)
    return records


def batch_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Decoded records with these of their columns. Raises Unreadable for a value that a column does not hold."""
    return pa.RecordBatch.from_arrays([_column(records, field) for field in schema], schema=schema)


def _column(records: Sequence[dict[str, Any]], field: pa.Field) -> pa.Array:
    try:
        return pa.array([record[field.name] for record in records], field.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        then = "land the column in a type that holds its values"
        raise Unreadable(f"column {field.name!r} cannot be read as {field.type}: {error}", then) from error
