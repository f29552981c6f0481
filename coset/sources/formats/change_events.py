"""Debezium's change events as JSON lines: the row that each leaves, and whether it deletes its key. In files that
have types too, Avro and Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.change_rows import (
    NO_CHANGE,
    NO_CHANGE_THEN,
    NOT_UNWRAPPED,
    NOT_UNWRAPPED_THEN,
    ChangeRows,
    check_said,
    decoded,
    is_encoded,
)
from coset.sources.formats.changes_seen import fields_of, fields_of_avro
from coset.sources.formats.json_lines import as_written, declared_schema, type_of, written_type
from coset.sources.formats.landed_file import LAND_AGAIN, FileFacts, Unreadable, UnusableRecord
from coset.sources.reader import RAW, WHY, as_json
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
        if _SCHEMA not in block or "schema" in schema.names or self._form is None:
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


_DECLARE = "declare the column as it is written"


class TypedEvents(Protocol):
    """Events with the types that their schema has, and that of Avro if one is known."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def avro_schema(self) -> Any: ...

    def facts_as(self, columns: FileColumns) -> FileFacts: ...

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]: ...


class ChangeRecords:
    """A file of change events as the rows that they leave, with the declared columns. One that the file does not have
    is null. Where records are set aside, all columns count, whichever are asked for, so that all readers agree."""

    def __init__(self, events: TypedEvents, stream: Stream) -> None:
        self._events = events
        self._stream = stream
        self._rows = ChangeRows(stream)

    @cached_property
    def schema(self) -> pa.Schema:
        offset, written = self._stream.offset, self._events.schema
        there = [field for field in declared_schema(self._stream) if field.name != offset]
        return pa.schema([*there, written.field(offset)] if offset in written.names else there)

    def facts(self) -> FileFacts:
        """What the file says without a look at its events."""
        return self._events.facts_as(columns_of(self.schema))

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        names = dict.fromkeys(name for name in columns if name in self.schema.names)
        aside = self._stream.sets_aside
        wanted = self.schema if aside else pa.schema([self.schema.field(name) for name in names])
        asked = [*names, *([WHY.name, RAW.name] if aside else [])]
        for events in self._events.batches(self._parts(wanted), start, end):
            runs = [each.select(asked) for each in self._runs(events, wanted)]
            yield from pa.Table.from_batches(runs).combine_chunks().to_batches() if len(runs) > 1 else runs

    def _parts(self, wanted: pa.Schema) -> Sequence[str]:
        """The columns of the file that are needed. Raises Unreadable if they are those of no change events, or if its
        schema says of a column that it is not as declared."""
        written, form = self._events.schema, self._stream.changes
        offset = [self._stream.offset] if self._stream.offset in written.names else []
        if wanted.names == offset:
            return offset
        if form is ChangeForm.ENVELOPE:
            parts, row = ["op", "before", "after"], written
            if not {*parts} <= {*written.names} or not all(
                pa.types.is_struct(written.field(n).type) for n in parts[1:]
            ):
                raise Unreadable(f"its records are {NO_CHANGE}", NO_CHANGE_THEN)
            row = pa.schema(list(written.field("after").type))
        else:
            row = written
            if "__deleted" not in written.names:
                raise Unreadable(NOT_UNWRAPPED, NOT_UNWRAPPED_THEN)
            parts = ["__deleted", *(name for name in wanted.names if name in row.names and name not in offset)]
        for name in key_columns(self._stream.key):
            # Who only looks declares none.
            if name and name not in row.names:
                there = ", ".join(each for each in row.names if each not in {"__deleted", *offset})
                raise Unreadable(f"there is no column {name!r} of the key", f"name it in key=; there are {there}")
        said = self._events.avro_schema
        try:
            check_said(fields_of_avro(said, form) if said and form is not None else {}, wanted)
        except UnusableRecord as error:
            raise Unreadable(str(error), error.then) from error
        return [*parts, *offset]

    def _runs(self, events: pa.RecordBatch, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of events, of which one that is no change of a row says why. Raises Unreadable if such are not set
        aside."""
        try:
            rows = self._read(events, wanted)
        except (pa.ArrowException, ValueError) as error:
            half = len(events) // 2
            if half:
                yield from self._runs(events.slice(0, half), wanted)
                yield from self._runs(events.slice(half), wanted)
                return
            found = self._wrong(events, wanted, error)
            if not self._stream.sets_aside:
                raise found from error
            at = self._stream.offset
            known = {at: events.column(at)[0].as_py()} if at in events.schema.names else {}
            values = {**known, WHY.name: str(found), RAW.name: as_json(events)}
            yield pa.RecordBatch.from_pylist([values], pa.schema([*wanted, WHY, RAW]))
        else:
            if self._stream.sets_aside:
                for field in (WHY, RAW):
                    rows = rows.append_column(field, pa.nulls(len(rows), field.type))
            yield rows

    def _read(self, events: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        return events if wanted.names == events.schema.names else self._rows.rows(events, wanted)

    def _wrong(self, event: pa.RecordBatch, wanted: pa.Schema, error: Exception) -> Unreadable:
        """What is wrong with one event."""
        at = self._stream.offset
        where = f"offset {event.column(at)[0].as_py():,}: " if at in event.schema.names else ""
        if isinstance(error, UnusableRecord):
            return Unreadable(f"{where}{error}", error.then)
        for field in wanted:
            try:
                self._read(event, pa.schema([field]))
            except (pa.ArrowException, ValueError) as said:
                kind = columns_of(pa.schema([field])).columns[0].type
                return Unreadable(f"{where}column {field.name!r} is not {kind}: {said}", _DECLARE)
        return Unreadable(f"{where}{error}", LAND_AGAIN)
