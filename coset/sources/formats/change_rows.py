"""Debezium's change events as columns: the row that each leaves, whether it deletes its key, and how values are
written."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import columns_of
from coset.sources.formats.changes_seen import has_decimals, type_in
from coset.sources.formats.json_lines import converted, type_of
from coset.sources.formats.landed_file import UnusableRecord
from coset.sources.plain_arrays import plain_array
from partitioning.model.composite_key import key_columns
from partitioning.model.streams import DELETED, ChangeForm, Column, Stream

# What stands for a value that the database did not say, as it is long and did not change: as text, as bytes, and as
# a number for each letter.
_UNSAID = "__debezium_unavailable_value"
_UNSAID_BYTES = _UNSAID.encode()
_UNSAID_NUMBERS = list(_UNSAID_BYTES)
# Days since 1970: of the years 1 to 9999, and that from which on times are written by the calendar that SQL has. Others
# are PostgreSQL's infinity, or wrong by days.
_DAYS, _TIMES_FROM = (-719_162, 2_932_896), -141_427
_A_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_EXACT = Context(prec=76)
_LEFT = ("c", "u", "r")
_ASIDE = 'let the stream set this record aside: bad_records="set aside up to 10"'
# What other records are, by their op, and what to do.
_OTHERS = {
    "t": (
        "a TRUNCATE of the whole table, and nothing says which records of other partitions came before it",
        "delete each row that was there before, in the database or, in a file of your own, by a line "
        f'{{"op":"d","before":{{…}}}} with its key; and leave this line out of your file, or {_ASIDE}',
    ),
    "m": ("a message, and no change of a row", "land the topic of the table alone"),
}
NO_CHANGE = "no change of a row by Debezium"
NO_CHANGE_THEN = "land the topic of one table alone, whose records are envelopes, or declare unwrapped=True"
NOT_UNWRAPPED = "it does not say whether its row is deleted, in '__deleted'"
NOT_UNWRAPPED_THEN = "let ExtractNewRecordState have delete.tombstone.handling.mode=rewrite, and land the topic again"
_UNSAID_THEN = (
    "leave the column out of columns=; or give the table REPLICA IDENTITY FULL in the database, write such rows "
    f"again, and {_ASIDE}"
)


class ChangeRows:
    """Makes the rows that a stream's change events leave: their columns are the parts of an event."""

    def __init__(self, stream: Stream) -> None:
        self.form = stream.changes
        self._key = key_columns(stream.key)
        self._offset = stream.offset

    def rows(self, events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """A row of each event. Raises ValueError, as Arrow does, if one is no change of a row."""
        deleted = _left(events) if self.form is ChangeForm.ENVELOPE else _unwrapped(events)
        columns = [self._column(field, events, deleted) for field in schema]
        for field, column in zip(schema, columns, strict=True):
            if _has_unsaid(column):
                what = f"column {field.name!r} has no value, as the database says none of long ones that stay"
                raise UnusableRecord(what, _UNSAID_THEN)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, field: pa.Field, events: pa.RecordBatch, deleted: pa.Array) -> pa.Array:
        """A column of the rows that events leave; of the key also that of those that they delete."""
        if field.name == DELETED:
            return deleted
        if field.name == self._offset:
            return events.column(field.name).cast(field.type)
        if self.form is ChangeForm.ENVELOPE:
            before, after = (part_of(events.column(side), field) for side in ("before", "after"))
        else:
            before = after = events.column(field.name) if field.name in events.schema.names else _none(events, field)
        gone = before if field.name in self._key else pa.scalar(None, after.type)
        return decoded(pc.if_else(deleted, gone, after), field.type)


def check_said(columns: Mapping[str, Mapping[str, Any]], schema: pa.Schema) -> None:
    """Raises UnusableRecord if what a schema of Connect's says of a column is that its values are none of what is
    declared."""
    for field in schema:
        column = columns.get(field.name)
        if column and is_encoded(field.type) and not _is_said(column, field.type):
            what = f"column {field.name!r} is written as {type_in(column) or column['type']}, and not as declared"
            raise UnusableRecord(what, "declare it so, with the scale that it has if it is a DECIMAL")


def is_encoded(kind: pa.DataType) -> bool:
    """Whether values are written as numbers or bytes that do not say what they are."""
    is_one = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
    return any(each(kind) for each in is_one)


def part_of(side: pa.StructArray, field: pa.Field) -> pa.Array:
    """A part of structs, null where there is none."""
    names = {part.name for part in side.type}
    return pc.struct_field(side, field.name) if field.name in names else _none(side, field)


def _none(beside: pa.Array | pa.RecordBatch, field: pa.Field) -> pa.Array:
    return pa.nulls(len(beside), field.type)


def _is_said(column: Mapping[str, Any], kind: pa.DataType) -> bool:
    """Whether a schema says that a column has values of this type."""
    if pa.types.is_decimal(kind):
        return has_decimals(column, kind.scale)
    said = type_in(column)
    return said is not None and type_of(Column("said", said)) == kind


def _left(events: pa.RecordBatch) -> pa.Array:
    """Whether each event deletes its row. Raises UnusableRecord if one neither leaves a row nor deletes one."""
    op = events.column("op")
    for said in pc.unique(op).to_pylist():
        if said not in (*_LEFT, "d"):
            what, then = _OTHERS.get(said, (NO_CHANGE, NO_CHANGE_THEN))
            raise UnusableRecord(f"it is {what}", then)
    deleted = pc.equal(op, "d")
    without = pc.if_else(deleted, events.column("before").is_null(), events.column("after").is_null())
    if pc.any(without).as_py():
        what = "it has no row, neither what is left of it nor, as it is deleted, its key"
        raise UnusableRecord(what, "give the table a primary key, or a replica identity that has it")
    return deleted


def _unwrapped(events: pa.RecordBatch) -> pa.Array:
    said = events.column("__deleted")
    if not pc.all(pc.is_in(said, pa.array(["true", "false"], said.type)), min_count=0).as_py():
        raise UnusableRecord(NOT_UNWRAPPED, NOT_UNWRAPPED_THEN)
    return pc.equal(said, "true")


def decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as Debezium writes them, in types that JSON, Avro or Parquet has, as this type. Raises ValueError, as
    Arrow does, if one does not fit."""
    column = plain_array(column)
    was = column.type
    if pa.types.is_null(was):
        return pa.nulls(len(column), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(was):
        parts = [decoded(part_of(column, field), field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(was):
        values = decoded(column.flatten(), kind.value_type)
        ends = np.cumsum([0, *pc.fill_null(pc.list_value_length(column), 0).to_numpy()])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, kind, mask=column.is_null())
    if is_encoded(kind):
        return _decimals(column, kind) if pa.types.is_decimal(kind) else _time(column, kind)
    if pa.types.is_binary(kind) and _is_text(was):
        return converted(column, kind)
    if pa.types.is_integer(kind) and pa.types.is_time(was):
        # Connect's own times have milliseconds.
        return column.cast(pa.time32("ms")).cast(pa.int32()).cast(kind)
    if was != kind and not any(is_one(was) and is_one(kind) for is_one in _ALIKE):
        raise _other(was)
    return column.cast(kind)


def _time(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Days, times of a day, or times."""
    was = column.type
    if pa.types.is_timestamp(kind):
        # Connect writes its own in UTC, and Debezium those with a zone as text.
        of_zone = (pa.types.is_timestamp(was) and was.tz) or _is_text(was)
        if not (of_zone if kind.tz else pa.types.is_integer(was) or pa.types.is_timestamp(was)):
            raise _other(was)
        made, day = column.cast(kind), _A_DAY[kind.unit]
        _within(made.cast(pa.int64()), _TIMES_FROM * day, (_DAYS[1] + 1) * day - 1, "time from 1582-10-15 to 9999")
        return made
    is_one = pa.types.is_date if pa.types.is_date(kind) else pa.types.is_time
    if not (is_one(was) or pa.types.is_integer(was)):
        raise _other(was)
    numbers = column.cast(kind).cast(pa.int32() if pa.types.is_date(kind) else pa.int64()) if is_one(was) else column
    if pa.types.is_date(kind):
        _within(numbers, *_DAYS, "day of the years 1 to 9999, counted from 1970")
        return numbers.cast(pa.int32()).cast(kind)
    _within(numbers, 0, _A_DAY["us"] - 1, "time of a day, in microseconds")
    return numbers.cast(pa.int64()).cast(kind)


def _other(kind: pa.DataType) -> ValueError:
    return ValueError(f"it is written as {_noun(kind)}")


def _noun(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        # Some have more digits than DuckDB has a type for.
        return f"DECIMAL({kind.precision},{kind.scale})"
    return columns_of(pa.schema([("it", kind)])).columns[0].type


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


# Of these types the one is the other, if its values fit.
_ALIKE = (pa.types.is_integer, pa.types.is_floating, _is_text, _is_bytes, pa.types.is_map)


def _within(numbers: pa.Array, least: int, most: int, what: str) -> None:
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and not least <= bounds["min"].as_py() <= bounds["max"].as_py() <= most:
        raise ValueError(f"a value is no {what}")


def _decimals(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals, or numbers, or bytes, which have the type's scale unless each says its own."""
    if pa.types.is_decimal(column.type):
        return column.cast(kind)
    unscaled = pc.struct_field(column, "value") if pa.types.is_struct(column.type) else column
    scales = pc.struct_field(column, "scale").to_pylist() if pa.types.is_struct(column.type) else None
    made = list[Decimal | None]()
    for place, value in enumerate(unscaled.to_pylist()):
        scale = scales[place] if scales else kind.scale
        match value:
            case str() | bytes() if scale is not None:
                data = value if isinstance(value, bytes) else b64decode(value, validate=True)
                number = Decimal(int.from_bytes(data, "big", signed=True))
                made.append(number.scaleb(-scale, _EXACT))
            case float() | int() if scales is None:
                # As it is printed, which is how JSON has it.
                made.append(Decimal(repr(value)))
            case _:
                made.append(None)
    return pa.array(made, kind)


def _has_unsaid(column: pa.Array) -> bool:
    """Whether a value, or one in it, stands for one that the database did not say."""
    kind = column.type
    if _is_text(kind):
        return bool(pc.any(pc.match_substring(column, _UNSAID)).as_py())
    if _is_bytes(kind):
        return bool(pc.any(pc.equal(column, pa.scalar(_UNSAID_BYTES, kind))).as_py())
    return pa.types.is_nested(kind) and any(map(_is_unsaid, column.to_pylist()))


def _is_unsaid(value: Any) -> bool:
    match value:
        case str():
            return _UNSAID in value
        case bytes():
            return value == _UNSAID_BYTES
        case list():
            return value == _UNSAID_NUMBERS or any(map(_is_unsaid, value))
        case dict():
            return any(map(_is_unsaid, value.values()))
        case _:
            return False
