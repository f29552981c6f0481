"""Avro container files: the header has the columns, the head of each block its number of records. Arrow types for
Avro's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.compressed import decompressed
from coset.sources.formats.landed_file import LAND_AGAIN, FileFacts, Unreadable, has_offsets

_OTHERWISE = "land the column in another type"
_IN_YEARS = "correct it and land the file again, or land the column as a number"
_MOST_DIGITS = 38

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.uuid(),
}


def arrow_schema_of(written: Any) -> pa.Schema:
    """The columns of a parsed writer's schema. Raises Unreadable for types that SQL does not have."""
    if not isinstance(written, dict) or written.get("type") != "record":
        what = f"its records are {_name(written)}, and records with columns are needed"
        raise Unreadable(what, "land records, by a transformation HoistField for instance")
    types = _Types()
    return pa.schema([types.field(field["name"], field["name"], field["type"]) for field in written["fields"]])


class _Types:
    """The types of a schema. Named types can be referred to."""

    def __init__(self) -> None:
        # None while the type is being built.
        self._named: dict[str, pa.DataType | None] = {}

    def field(self, name: str, column: str, written: Any) -> pa.Field:
        """A field, `column` of whose record is that of the file."""
        branches = written if isinstance(written, list) else [written]
        others = [branch for branch in branches if _name(branch) != "null"]
        if not others:
            return pa.field(name, pa.null())
        if len(others) != 1:
            listed = " and ".join(map(_name, others))
            raise Unreadable(f"column {column!r} may be {listed}, which is no type of SQL's", _OTHERWISE)
        return pa.field(name, self._type(column, others[0]), nullable=len(branches) > 1)

    def _type(self, column: str, written: Any) -> pa.DataType:
        if isinstance(written, str):
            return _PLAIN[written] if written in _PLAIN else self._known(column, written)
        made = self._made(column, written)
        if "name" in written:
            self._named[written["name"]] = made
        return made

    def _made(self, column: str, written: Any) -> pa.DataType:
        kind = written["type"]
        if not isinstance(kind, str):
            return self._type(column, kind)
        if written.get("logicalType") == "decimal" and kind in {"bytes", "fixed"}:
            return _decimal(column, written)
        if (kind, written.get("logicalType")) in _LOGICAL:
            return _LOGICAL[kind, written["logicalType"]]
        match kind:
            case "array":
                return pa.list_(self.field("item", column, written["items"]))
            case "map":
                return pa.map_(pa.string(), self.field("value", column, written["values"]))
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary()
            case "record":
                self._named[written["name"]] = None
                return pa.struct([self.field(field["name"], column, field["type"]) for field in written["fields"]])
            case _:
                return self._type(column, kind)

    def _known(self, column: str, name: str) -> pa.DataType:
        kind = self._named.get(name)
        if kind is None:
            raise Unreadable(f"column {column!r} holds records {name} within themselves", _OTHERWISE)
        return kind


def _decimal(column: str, written: Any) -> pa.DataType:
    """A decimal. Connect writes 64 digits if it knows no precision; values with more than ours are refused."""
    scale = written.get("scale", 0)
    if not written.get("precision"):
        raise Unreadable(f"column {column!r} is a decimal of no precision", _OTHERWISE)
    if scale > _MOST_DIGITS:
        raise Unreadable(f"column {column!r} has {scale} digits behind the point", _OTHERWISE)
    return pa.decimal128(min(written["precision"], _MOST_DIGITS), scale)


def _name(written: Any) -> str:
    if isinstance(written, list):
        return " or ".join(map(_name, written))
    return str(written.get("type") if isinstance(written, dict) else written)


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
    try:
        with _decoding():
            records = list(block)
    except Unreadable as error:
        if (name := _beyond(block)) is None:
            raise
        what = f"column {name!r} holds a day or time outside of the years 1 to 9999, which cannot be read"
        raise Unreadable(what, _IN_YEARS) from error
    if block.num_records < 0 or block.bytes_.read(1):
        raise Unreadable(f"a block says {block.num_records} records, and holds others", LAND_AGAIN)
    return records


def _beyond(block: Any) -> str | None:
    """The column whose days or times keep a block from being read; None if something else does."""
    schema = block.writer_schema
    if not isinstance(schema, dict) or "fields" not in schema:
        return None
    numbers = [_as_numbers(field) for field in schema["fields"]]
    for place, field in enumerate(schema["fields"]):
        if not _reads(block, schema, [*numbers[:place], field, *numbers[place + 1 :]]):
            return str(field["name"]) if _reads(block, schema, numbers) else None
    return None


def _as_numbers(written: Any) -> Any:
    """A part of a schema, with the numbers that stand for days and times."""
    if isinstance(written, list):
        return [_as_numbers(each) for each in written]
    if not isinstance(written, dict):
        return written
    left_out = "logicalType" if written.get("type") in ("int", "long") else ""
    return {name: _as_numbers(value) for name, value in written.items() if name != left_out}


def _reads(block: Any, schema: Any, fields: Sequence[Any]) -> bool:
    """Whether the records of a block can be read with these fields."""
    block.bytes_.seek(0)
    try:
        as_fields = fastavro.parse_schema({"type": "record", "name": schema["name"], "fields": fields})
        for _ in range(block.num_records):
            fastavro.schemaless_reader(block.bytes_, as_fields, None)
    except Exception:
        return False
    return True


def batch_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Decoded records with these of their columns. Raises Unreadable for a value that a column does not hold."""
    return pa.RecordBatch.from_arrays([_column(records, field) for field in schema], schema=schema)


def _column(records: Sequence[dict[str, Any]], field: pa.Field) -> pa.Array:
    try:
        return pa.array([record[field.name] for record in records], field.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        then = "land the column in a type that holds its values"
        raise Unreadable(f"column {field.name!r} cannot be read as {field.type}: {error}", then) from error
