"""Values in JSON and in Avro, read strictly as the declared columns: nothing is rounded, cut or converted. And those
that are Debezium's change events.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import groupby
from typing import Any, TypedDict

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import FileColumns, cast_exactly
from coset.sources.formats.avro import batch_of
from coset.sources.formats.change_events import ChangeLines, ChangeRecords, without_schema
from coset.sources.formats.landed_file import FileFacts, Unreadable
from coset.sources.kafka.keys import Wrong, first_wrong, keys_of
from coset.sources.kafka.registry import AvroSchema
from partitioning.framed_keys import FRAME, framed_id
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.placement import each_of, hash_schema, hashed_columns
from partitioning.model.streams import DELETED, Format, Stream
from partitioning.values import replace

_JSON_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException, OverflowError)


class JsonValues:
    """Reads the columns of a schema from JSON objects. A missing field is null, other fields are ignored.

    >>> JsonValues(pa.schema([("delay", pa.int32())])).columns([b'{"delay": 5, "from": "JFK"}', None], ["delay"])[0]
    <pyarrow.lib.Int32Array object at ...>
    [
      5,
      null
    ]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._decode = msgspec.json.Decoder(_object(schema)).decode

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that does not fit its declaration."""
        try:
            rows = [{} if value is None else self._decode(value) for value in values]
            return [pa.array([row.get(name) for row in rows], self._schema.field(name).type) for name in names]
        except _JSON_ERRORS:
            wrong = first_wrong(values, self._read, _JSON_ERRORS)
            raise Wrong(wrong.number, f"the value is not as declared: {wrong.what}") from None

    def _read(self, value: bytes) -> None:
        row = self._decode(value)
        for field in self._schema:
            pa.array([row.get(field.name)], field.type)


def _object(fields: Sequence[pa.Field]) -> Any:
    """The Python type of an object with these optional fields."""
    return TypedDict("_Object", {field.name: _python(field.type) | None for field in fields}, total=False)  # type: ignore[operator]


def _python(kind: pa.DataType) -> Any:
    """The Python type for an Arrow type."""
    for is_kind, python in _SIMPLE:
        if is_kind(kind):
            return python
    if pa.types.is_struct(kind):
        return _object([kind.field(number) for number in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list[_python(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _python(kind.item_type) | None]  # type: ignore[misc]
    return Any


_SIMPLE = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_date, date),
    (pa.types.is_time, time),
    (pa.types.is_binary, bytes),
)


_AVRO_ERRORS = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    OverflowError,
    StopIteration,
    Unreadable,
    pa.ArrowException,
)


class AvroValues:
    """Reads columns from values that all have one schema, or each the schema whose id it begins with.

    `schema_of` returns the schema of an id, None if there is none. Without ids there is the one `given`. A column that
    a writer did not have is null.
    """

    def __init__(
        self, columns: pa.Schema, schema_of: Callable[[int], AvroSchema | None] | None, given: AvroSchema | None = None
    ) -> None:
        self._columns = columns
        self._schema_of = schema_of
        self._given = given
        self._known: dict[int, AvroSchema | None] = {}

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that does not fit its schema or the plan."""
        kinds = [self._columns.field(name).type for name in names]
        parts: list[list[pa.Array]] = [[pa.nulls(0, kind)] for kind in kinds]
        schemas = [None if value is None else self._schema(number, value) for number, value in enumerate(values)]
        start = 0
        for schema, group in groupby(schemas):
            end = start + sum(1 for _ in group)
            for part, column in zip(parts, self._read(schema, values[start:end], names, kinds, start), strict=True):
                part.append(column)
            start = end
        return [pa.concat_arrays(part) for part in parts]

    def _schema(self, number: int, value: bytes) -> AvroSchema:
        """The schema that the value of that number was written by."""
        if self._given is not None:
            return self._given
        assert self._schema_of is not None
        registered = framed_id(value)
        if registered is None:
            raise Wrong(number, "the value does not begin with the number of a schema of the registry")
        if registered not in self._known:
            self._known[registered] = self._schema_of(registered)
        schema = self._known[registered]
        if schema is None:
            raise Wrong(number, f"the value is written by schema {registered}, which the registry does not have")
        return schema

    def _read(
        self,
        schema: AvroSchema | None,
        run: Sequence[bytes | None],
        names: Sequence[str],
        kinds: Sequence[pa.DataType],
        start: int,
    ) -> list[pa.Array]:
        if schema is None:
            return [pa.nulls(len(run), kind) for kind in kinds]

        def columns(values: Sequence[bytes | None]) -> list[pa.Array]:
            rows = [self._decoded(schema, value) for value in values if value is not None]
            return self.columns_of(schema, rows, names, kinds)

        try:
            return columns(run)
        except _AVRO_ERRORS:
            wrong = first_wrong(run, lambda value: columns([value]), _AVRO_ERRORS)
            raise Wrong(
                start + wrong.number, f"the value is not as its schema says: {wrong.what}", wrong.then
            ) from None

    def columns_of(
        self, schema: AvroSchema, rows: Sequence[dict[str, Any]], names: Sequence[str], kinds: Sequence[pa.DataType]
    ) -> list[pa.Array]:
        """These columns of values of one schema."""
        return [_column(schema, rows, name, kind) for name, kind in zip(names, kinds, strict=True)]

    def _decoded(self, schema: AvroSchema, value: bytes) -> dict[str, Any]:
        data = io.BytesIO(value)
        if self._given is None:
            data.seek(FRAME.size)
        row: dict[str, Any] = fastavro.schemaless_reader(data, schema.parsed, None)  # type: ignore[assignment]
        if data.tell() != len(value):
            raise ValueError("bytes are left behind it")
        return row


def _column(schema: AvroSchema, rows: Sequence[dict[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    if name not in schema.columns.names:
        return pa.nulls(len(rows), kind)
    column = pa.array([row[name] for row in rows], schema.columns.field(name).type)
    return column if column.type == kind else cast_exactly(column, kind)


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
        self._stream = replace(stream, bad_records=None)

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
    return bool(stream.changes) and (stream.format == Format.AVRO or framed)


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
        keys = keys_of(said, replace(stream, changes=None)) if is_known else _of_json(said, columns, stream)
    except Wrong as wrong:
        raise Wrong(gone[wrong.number], f"it is a tombstone, and {wrong.what}", wrong.then) from None
    there, deleted = iter(range(len(gone))), pa.array(is_gone)
    places = pa.array([next(there) if each else None for each in is_gone], pa.int64())

    def column(name: str, said: pa.Array) -> pa.Array:
        if name == DELETED:
            return pc.or_(pc.fill_null(said, False), deleted)
        return pc.if_else(deleted, cast_exactly(keys[name], said.type).take(places), said) if name in keys else said

    return {name: column(name, said) for name, said in columns.items()}
