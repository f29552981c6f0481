"""Values in JSON and in Avro, read strictly as the declared columns: nothing is rounded, cut or converted."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import groupby
from typing import Any, TypedDict

import fastavro
import msgspec
import pyarrow as pa

from coset.sources.file_columns import cast_exactly
from coset.sources.formats.landed_file import Unreadable
from coset.sources.kafka.keys import Wrong, first_wrong
from coset.sources.kafka.registry import AvroSchema
from partitioning.framed_keys import FRAME, framed_id

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
