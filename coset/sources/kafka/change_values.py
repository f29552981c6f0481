"""Values that are Debezium's change events, read as rows of the table that they change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from coset.sources.file_columns import FileColumns, cast_exactly
from coset.sources.formats.avro import batch_of
from coset.sources.formats.change_lines import ChangeLines, without_schema
from coset.sources.formats.change_records import ChangeRecords
from coset.sources.formats.landed_file import FileFacts
from coset.sources.kafka.decoded_values import AvroValues
from coset.sources.kafka.keys import Wrong, first_wrong, keys_of
from coset.sources.kafka.registry import AvroSchema
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.placement import each_of, hash_schema, hashed_columns
from partitioning.model.streams import DELETED, Format, Stream
from partitioning.values import replace

_ERRORS = (ValueError, pa.ArrowException)
_NO_JSON = (ValueError, LookupError, TypeError, pa.ArrowException)


class ChangeValues:
    """Reads the columns of rows from change events. Without a value, all are null."""

    def __init__(self, stream: Stream, schema: pa.Schema) -> None:
        self._schema = schema
        self._read = ChangeLines(stream)

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that is no change of a row, or not as declared."""
        wanted, said = pa.schema([self._schema.field(name) for name in names]), [each for each in values if each]
        try:
            rows = self._rows(said, wanted)
        except _ERRORS:
            wrong = first_wrong(values, lambda value: self._rows([value], wanted), _ERRORS)
            raise Wrong(wrong.number, f"the value is not as declared: {wrong.what}", wrong.then) from None
        there = iter(range(len(said)))
        places = pa.array([next(there) if each else None for each in values], pa.int64())
        return [column.take(places) for column in rows.columns]

    def _rows(self, values: Sequence[bytes], wanted: pa.Schema) -> pa.RecordBatch:
        # Between parts of a value a line may end; within a text none does.
        lines = b"".join(value.replace(b"\n", b" ") + b"\n" for value in values)
        return self._read(lines, wanted)


class AvroChanges(AvroValues):
    """Reads the columns of rows from change events in Avro, each by the schema that it was written by. Without a value,
    all are null."""

    def __init__(
        self,
        stream: Stream,
        columns: pa.Schema,
        schema_of: Callable[[int], AvroSchema | None] | None,
        given: AvroSchema | None = None,
    ) -> None:
        super().__init__(columns, schema_of, given)
        # Who reads records sets them aside, one by one.
        self._stream = replace(stream, bad_records=UNSET)

    def columns_of(
        self, schema: AvroSchema, rows: Sequence[dict[str, Any]], names: Sequence[str], kinds: Sequence[pa.DataType]
    ) -> list[pa.Array]:
        read = ChangeRecords(_Decoded(schema, rows), self._stream).batches(names, 0, len(rows))
        table = pa.Table.from_batches(read, pa.schema(list(zip(names, kinds, strict=True))))
        return [column.combine_chunks() for column in table.columns]


class _Decoded:
    """Events of one schema, decoded."""

    def __init__(self, schema: AvroSchema, rows: Sequence[dict[str, Any]]) -> None:
        self.schema = schema.columns
        self.avro_schema = schema.parsed
        self._rows = rows

    def facts_as(self, columns: FileColumns) -> FileFacts:
        return FileFacts(columns, len(self._rows))

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield batch_of(self._rows, pa.schema([self.schema.field(name) for name in columns]))


def tombstones_have_keys_only(stream: Stream) -> bool:
    """Whether no line of JSON can be made of a tombstone: its key, or what other values are, is no JSON."""
    framed = any(hash_schema(each) for each in each_of(stream.hash))
    return bool(stream.changes) and (stream.written_as == Format.AVRO or framed)


def _of_json(said: Sequence[bytes], columns: Mapping[str, pa.Array], stream: Stream) -> dict[str, pa.Array]:
    """The columns of keys that are JSON, however they are hashed. Raises Wrong at the first that is not."""
    names = [name for name in key_columns(stream.key) if name in columns]

    def read(key: bytes) -> list[pa.Array]:
        found = json.loads(without_schema(key))
        return [pa.array([found[name]], columns[name].type) for name in names]

    try:
        rows = [read(key) for key in said]
    except _NO_JSON:
        raise first_wrong(said, read, _NO_JSON) from None
    return {name: pa.concat_arrays([row[place] for row in rows]) for place, name in enumerate(names)}


def without_rows(
    written: Sequence[tuple[bytes | None, bytes | None]], columns: Mapping[str, pa.Array], stream: Stream
) -> dict[str, pa.Array]:
    """The columns, where a tombstone deletes the row of its key. Raises Wrong at the first whose key is not as
    declared."""
    is_gone = [key is not None and value is None for key, value in written]
    gone = [number for number, each in enumerate(is_gone) if each]
    if not gone:
        return dict(columns)
    said = [key for key, value in written if key is not None and value is None]
    try:
        is_known = not key_parts(stream.key) or hashed_columns(stream.hash)
        keys = keys_of(said, replace(stream, changes=UNSET)) if is_known else _of_json(said, columns, stream)
    except Wrong as wrong:
        raise Wrong(gone[wrong.number], f"it is a tombstone, and {wrong.what}", wrong.then) from None
    there, deleted = iter(range(len(gone))), pa.array(is_gone)
    places = pa.array([next(there) if each else None for each in is_gone], pa.int64())

    def column(name: str, said: pa.Array) -> pa.Array:
        if name == DELETED:
            return pc.or_(pc.fill_null(said, False), deleted)
        return pc.if_else(deleted, cast_exactly(keys[name], said.type).take(places), said) if name in keys else said

    return {name: column(name, said) for name, said in columns.items()}
