"""Debezium's change events as JSON lines: the row that each leaves, and whether it deletes its key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from coset.sources.formats.change_rows import ChangeRows, check_said, decoded, is_encoded
from coset.sources.formats.changes_seen import fields_of
from coset.sources.formats.json_lines import as_written, type_of, written_type
from partitioning.model.composite_key import key_columns
from partitioning.model.streams import DELETED, ChangeForm, Column, Stream

# The ways in which a decimal is written: bytes, with its scale if each has its own, or a number.
_DECIMALS: Sequence[pa.DataType | None] = (
    pa.string(),
    pa.struct([("scale", pa.int32()), ("value", pa.string())]),
    None,
)
# A line with its schema begins so, and what it says stands behind that.
_SCHEMA, _BEFORE_PAYLOAD, _PAYLOAD = b'{"schema":{', b',"payload":', "payload"


def deletes(key: bytes, form: ChangeForm) -> bytes:
    """A line that deletes the row of a record's key, which a tombstone has no line for."""
    # Of one that is no JSON, who reads the line says so.
    with suppress(ValueError):
        key = without_schema(key)
    if form is ChangeForm.UNWRAPPED:
        return key.rstrip()[:-1] + b',"__deleted":"true"}'
    return b'{"op":"d","before":' + key + b"}"


def without_schema(key: bytes) -> bytes:
    """A key in JSON without the schema that JsonConverter writes beside it by its own settings. Raises ValueError."""
    said = json.loads(key)
    is_beside = isinstance(said, dict) and said.keys() == {"schema", _PAYLOAD} and isinstance(said[_PAYLOAD], dict)
    return json.dumps(said[_PAYLOAD]).encode() if is_beside else key


class ChangeLines:
    """Makes the records of lines with a stream's changes. Lines may have the schema beside what they say.

    Decimals may be written in one of several ways; which it is of a column is found with the first value.
    """

    def __init__(self, stream: Stream) -> None:
        self._form = stream.changes
        self._key = key_columns(stream.key)
        self._offset = stream.offset
        self._rows = ChangeRows(stream)
        self._decimals = dict[str, pa.DataType | None]()

    def __call__(self, block: bytes, schema: pa.Schema) -> pa.RecordBatch:
        """The records of complete lines. Raises ValueError, as Arrow does, if one is no change of a row."""
        if schema.names == [self._offset]:
            return pa.RecordBatch.from_arrays(self._read(block, []).columns[-1:], schema=schema)
        self._check_schemas(block, schema)
        events = self._read(block, [field for field in schema if field.name not in {DELETED, self._offset}])
        return self._rows.rows(events, schema)

    def _check_schemas(self, block: bytes, schema: pa.Schema) -> None:
        """Raises UnusableRecord if a line's schema says of a column that its values are none of what is declared."""
        if _SCHEMA not in block or "schema" in schema.names or self._form is UNSET:
            return
        for said in {line.partition(_BEFORE_PAYLOAD)[0] for line in block.split(b"\n") if line.startswith(_SCHEMA)}:
            check_said(fields_of(json.loads(said + b"}"), self._form), schema)

    def _read(self, block: bytes, fields: Sequence[pa.Field]) -> pa.RecordBatch:
        try:
            return self._events(block, fields)
        except pa.ArrowException:
            decimals = [field for field in fields if pa.types.is_decimal(field.type)]
            if not decimals:
                raise
        for field in decimals:
            for form in _DECIMALS:
                self._decimals[field.name] = form
                if self._can_read(block, field):
                    break
            else:
                del self._decimals[field.name]
        return self._events(block, fields)

    def _can_read(self, block: bytes, field: pa.Field) -> bool:
        try:
            self._events(block, [field])
        except pa.ArrowException:
            return False
        return True

    def _events(self, block: bytes, fields: Sequence[pa.Field]) -> pa.RecordBatch:
        """What lines say of these fields, be it beside their schema. A row's own column of that name is never the
        last."""
        lines = as_written(block, self._written(fields))
        if lines.schema.names[-1] != _PAYLOAD:
            return lines
        payload, said = lines.column(_PAYLOAD), lines.schema.names[:-1]
        parts = [pc.coalesce(lines.column(name), pc.struct_field(payload, name)) for name in said]
        return pa.RecordBatch.from_arrays(parts, names=said)

    def _written(self, fields: Sequence[pa.Field]) -> pa.Schema:
        """The types of lines in which rows have these fields."""
        row = [field.with_type(self._type(field)) for field in fields]
        if self._form is ChangeForm.ENVELOPE:
            before = [field for field in row if field.name in self._key]
            level = [("op", pa.string()), ("before", pa.struct(before)), ("after", pa.struct(row))]
            said = [pa.field(*each) for each in level]
        else:
            said = [*row, pa.field("__deleted", pa.string())]
        said.append(pa.field(self._offset, pa.int64()))
        names = {field.name for field in said}
        return pa.schema(said if _PAYLOAD in names else [*said, pa.field(_PAYLOAD, pa.struct(said))])

    def _type(self, field: pa.Field) -> pa.DataType:
        kind = field.type
        if pa.types.is_decimal(kind):
            return self._decimals.get(field.name, _DECIMALS[0]) or kind
        if pa.types.is_date(kind):
            return pa.int32()
        if pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
            return pa.int64()
        return written_type(kind)


def changes_have_values(column: Column, *, typed: bool = False) -> bool:
    """Whether Debezium's values of a column are exactly what is declared. If records are `typed`, decimals within
    others say that they are some."""
    kind = type_of(column)
    parts = () if kind is None else tuple(_parts(kind))
    if kind is None or any(is_encoded(each) and not (typed and pa.types.is_decimal(each)) for each in parts):
        return False
    if is_encoded(kind) or any(map(is_encoded, parts)):
        return True
    try:
        decoded(as_written(b"{}\n", pa.schema([("it", written_type(kind))])).column(0), kind)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types that a nested type is made of."""
    for number in range(kind.num_fields):
        part = kind.field(number).type
        yield from (part, *_parts(part))
