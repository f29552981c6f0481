"""Debezium's change events as JSON lines: the row that each leaves, and whether it deletes its key."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from coset.sources.formats.changes_seen import fields_of, has_decimals, type_in
from coset.sources.formats.json_lines import UnusableLine, as_written
from coset.sources.formats.json_types import converted, has_values, type_of, written_type
from partitioning.model.composite_key import key_columns
from partitioning.model.streams import DELETED, ChangeForm, Column, Stream

# What stands for a value that the database did not say, as it is long and did not change: as text, as bytes, and as
# a number for each letter.
_UNSAID = "__debezium_unavailable_value"
_UNSAID_BYTES = _UNSAID.encode()
_UNSAID_NUMBERS = list(_UNSAID_BYTES)
_MAY_BE_UNSAID = (_UNSAID_BYTES, b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ")
# The ways in which a decimal is written: bytes, with its scale if each has its own, or a number.
_DECIMALS: Sequence[pa.DataType | None] = (
    pa.string(),
    pa.struct([("scale", pa.int32()), ("value", pa.string())]),
    None,
)
# A line with its schema begins so, and what it says stands behind that.
_SCHEMA, _BEFORE_PAYLOAD, _PAYLOAD = b'{"schema":{', b',"payload":', "payload"
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
        f"in the database, delete the rows that were there before, so that each is said to be deleted, and {_ASIDE}",
    ),
    "m": ("a message, and no change of a row", "land the topic of the table alone"),
}
_NO_CHANGE = "land the topic of one table alone, whose records are envelopes, or declare unwrapped=True"
_NOT_UNWRAPPED = "let ExtractNewRecordState have delete.tombstone.handling.mode=rewrite, and land the topic again"
_UNSAID_THEN = (
    "leave the column out of columns=; or give the table REPLICA IDENTITY FULL in the database, write such rows "
    f"again, and {_ASIDE}"
)


def deletes(key: bytes, form: ChangeForm) -> bytes:
    """A line that deletes the row of a record's key, which a tombstone has no line for."""
    if form is ChangeForm.UNWRAPPED:
        return key.rstrip()[:-1] + b',"__deleted":"true"}'
    return b'{"op":"d","before":' + key + b"}"


class ChangeLines:
    """Makes the records of lines with a stream's changes. Lines may have the schema beside what they say.

    Decimals may be written in one of several ways; which it is of a column is found with the first value.
    """

    def __init__(self, stream: Stream) -> None:
        self._form = stream.changes
        self._key = key_columns(stream.key)
        self._offset = stream.offset
        self._decimals = dict[str, pa.DataType | None]()

    def __call__(self, block: bytes, schema: pa.Schema) -> pa.RecordBatch:
        """The records of complete lines. Raises ValueError, as Arrow does, if one is no change of a row."""
        if schema.names == [self._offset]:
            return pa.RecordBatch.from_arrays([_part(self._read(block, []), self._offset)], schema=schema)
        self._check_schemas(block, schema)
        lines = self._read(block, [field for field in schema if field.name not in {DELETED, self._offset}])
        deleted = _left(lines) if self._form is ChangeForm.ENVELOPE else _unwrapped(lines)
        columns = [self._column(field, lines, deleted) for field in schema]
        may_be_unsaid = any(text in block for text in _MAY_BE_UNSAID)
        for field, column in zip(schema, columns, strict=True):
            # Numbers may have blanks between them.
            if (may_be_unsaid or pa.types.is_list(field.type)) and any(map(_is_unsaid, column.to_pylist())):
                what = f"column {field.name!r} has no value, as the database says none of long ones that stay"
                raise UnusableLine(what, _UNSAID_THEN)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, field: pa.Field, lines: pa.RecordBatch, deleted: pa.Array) -> pa.Array:
        """A column of the rows that lines leave; of the key also that of those that they delete."""
        if field.name == DELETED:
            return deleted
        if field.name == self._offset:
            return _part(lines, field.name).cast(field.type)
        sides = [lines] * 2
        if self._form is ChangeForm.ENVELOPE:
            sides = [_part(lines, side) for side in ("before", "after")]
        if field.name in self._key:
            before, after = (_of(side, field.name) for side in sides)
            column = pc.if_else(deleted, before, after)
        else:
            after = _of(sides[1], field.name)
            column = pc.if_else(deleted, pa.scalar(None, after.type), after)
        return _decoded(column, field.type)

    def _check_schemas(self, block: bytes, schema: pa.Schema) -> None:
        """Raises UnusableLine if a line's schema says of a column that its values are none of what is declared."""
        if _SCHEMA not in block or "schema" in schema.names or self._form is UNSET:
            return
        for said in {line.partition(_BEFORE_PAYLOAD)[0] for line in block.split(b"\n") if line.startswith(_SCHEMA)}:
            columns = fields_of(json.loads(said + b"}"), self._form)
            for field in schema:
                column = columns.get(field.name)
                if column and _is_encoded(field.type) and not _is_said(column, field.type):
                    what = (
                        f"column {field.name!r} is written as {type_in(column) or column['type']}, and not as declared"
                    )
                    raise UnusableLine(what, "declare it so, with the scale that it has if it is a DECIMAL")

    def _read(self, block: bytes, fields: Sequence[pa.Field]) -> pa.RecordBatch:
        try:
            return as_written(block, self._written(fields))
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
        return as_written(block, self._written(fields))

    def _can_read(self, block: bytes, field: pa.Field) -> bool:
        try:
            as_written(block, self._written([field]))
        except pa.ArrowException:
            return False
        return True

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


def changes_have_values(column: Column) -> bool:
    """Whether Debezium's values of a column are exactly what is declared."""
    kind = type_of(column)
    if kind is None or any(map(_is_encoded, _parts(kind))):
        return False
    return _is_encoded(kind) or has_values(column)


def _is_encoded(kind: pa.DataType) -> bool:
    """Whether values are written as numbers or bytes that do not say what they are."""
    is_one = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
    return any(each(kind) for each in is_one)


def _is_said(column: Mapping[str, Any], kind: pa.DataType) -> bool:
    """Whether a schema says that a column has values of this type."""
    if pa.types.is_decimal(kind):
        return has_decimals(column, kind.scale)
    said = type_in(column)
    return said is not None and type_of(Column("said", said)) == kind


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types that a nested type is made of."""
    for number in range(kind.num_fields):
        part = kind.field(number).type
        yield from (part, *_parts(part))


def _part(lines: pa.RecordBatch, name: str) -> pa.Array:
    """What a line says under a name, or beside its schema."""
    said = lines.column(name)
    # A row's own column of that name is never the last.
    has_payload = lines.schema.names[-1] == _PAYLOAD
    return pc.coalesce(said, pc.struct_field(lines.column(_PAYLOAD), name)) if has_payload else said


def _of(side: pa.RecordBatch | pa.StructArray, name: str) -> pa.Array:
    """A column of rows, which are the lines themselves or in one of their columns."""
    return _part(side, name) if isinstance(side, pa.RecordBatch) else pc.struct_field(side, name)


def _left(lines: pa.RecordBatch) -> pa.Array:
    """Whether each line deletes its row. Raises UnusableLine if one neither leaves a row nor deletes one."""
    op = _part(lines, "op")
    for said in pc.unique(op).to_pylist():
        if said not in (*_LEFT, "d"):
            what, then = _OTHERS.get(said, ("no change of a row by Debezium", _NO_CHANGE))
            raise UnusableLine(f"it is {what}", then)
    deleted = pc.equal(op, "d")
    without = pc.if_else(deleted, _part(lines, "before").is_null(), _part(lines, "after").is_null())
    if pc.any(without).as_py():
        what = "it has no row, neither what is left of it nor, as it is deleted, its key"
        raise UnusableLine(what, "give the table a primary key, or a replica identity that has it")
    return deleted


def _unwrapped(lines: pa.RecordBatch) -> pa.Array:
    said = _part(lines, "__deleted")
    if not pc.all(pc.is_in(said, pa.array(["true", "false"])), min_count=0).as_py():
        raise UnusableLine("it does not say whether its row is deleted, in '__deleted'", _NOT_UNWRAPPED)
    return pc.equal(said, "true")


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as Debezium writes them, as this type. Raises ValueError, as Arrow does, if one does not fit."""
    if pa.types.is_decimal(kind):
        return column if column.type == kind else _decimals(column, kind)
    if pa.types.is_time(kind):
        _within(column, 0, _A_DAY["us"] - 1, "time of a day, in microseconds")
        return column.cast(kind)
    if pa.types.is_date(kind):
        _within(column, *_DAYS, "day of the years 1 to 9999, counted from 1970")
        return column.cast(kind)
    if pa.types.is_timestamp(kind):
        made = column.cast(kind) if kind.tz is None else converted(column, kind)
        day = _A_DAY[kind.unit]
        _within(made.cast(pa.int64()), _TIMES_FROM * day, (_DAYS[1] + 1) * day - 1, "time from 1582-10-15 to 9999")
        return made
    return converted(column, kind)


def _within(numbers: pa.Array, least: int, most: int, what: str) -> None:
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and not least <= bounds["min"].as_py() <= bounds["max"].as_py() <= most:
        raise ValueError(f"a value is no {what}")


def _decimals(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals of bytes, which have the type's scale unless each says its own."""
    unscaled = pc.struct_field(column, "value") if pa.types.is_struct(column.type) else column
    scales = pc.struct_field(column, "scale").to_pylist() if pa.types.is_struct(column.type) else None
    made = list[Decimal | None]()
    for place, text in enumerate(unscaled.to_pylist()):
        scale = scales[place] if scales else kind.scale
        if text is None or scale is None:
            made.append(None)
            continue
        number = Decimal(int.from_bytes(b64decode(text, validate=True), "big", signed=True))
        made.append(number.scaleb(-scale, _EXACT))
    return pa.array(made, kind)


def _is_unsaid(value: Any) -> bool:
    """Whether a value, or one in it, stands for one that the database did not say."""
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
