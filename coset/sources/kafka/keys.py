"""The keys of records, as Kafka's serialisers and those of a schema registry wrote them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from coset.sources.file_columns import arrow_schema, type_named
from partitioning.errors import Refused
from partitioning.framed_keys import column_type, schema_id, values_of, written_key
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.key_schemas import Framing
from partitioning.model.placement import HashName, KeyFormat, each_of, hash_schema, hashed_columns
from partitioning.model.streams import Column, Stream

_ERRORS = (UnicodeDecodeError, struct.error)
_NOT_SO = (ValueError, OverflowError, TypeError, pa.ArrowException)
# The values of a key, as many as it has columns.
_Values = Sequence[Any]


def read_of_key(stream: Stream) -> tuple[str, ...]:
    """The names of the columns that are read from a record's key; none if changes say them in their values."""
    return () if stream.changes and key_parts(stream.key) else key_columns(stream.key)


def key_columns_of(stream: Stream) -> tuple[Column, ...]:
    """The columns that records in a broker have of their keys; of a JSON object, with the types that are declared."""
    schema, parts = hash_schema(stream.hash), key_parts(stream.key)
    if parts and not read_of_key(stream):
        return ()
    if not parts:
        return (Column(stream.key, stream.key_format.column_types[0]),)
    if schema and schema.framing is not Framing.JSON_SCHEMA:
        return tuple(Column(field.name, column_type(field.type)) for field in schema.fields)
    declared = stream.columns
    return tuple(Column(part, type_named(declared[part]) or "") for part in parts)


def keys_of(written: Sequence[bytes | None], stream: Stream, aside: Collection[int] = ()) -> Mapping[str, pa.Array]:
    """The columns that these keys have. They are null where there is none, if the key is a column by itself, and of the
    records `aside`, which cannot be used.

    Raises Wrong at the first that is not as declared.
    """
    parts = key_parts(stream.key)
    if not parts and hash_schema(stream.hash) is None:
        return {stream.key: _plain(written, stream.key_format)}
    columns, read, rows = key_columns_of(stream), _reader(stream), list[_Values]()
    for number, data in enumerate(written):
        if data is None and parts and number not in aside:
            raise Wrong(number, f"it has no key, from which the columns {', '.join(parts)} are read")
        try:
            rows.append([None] * len(columns) if data is None else read(data))
        except (*_NOT_SO, Refused) as error:
            raise Wrong(number, error.findings[0].what if isinstance(error, Refused) else str(error)) from None
    kinds = arrow_schema(columns)
    return {field.name: _column([row[place] for row in rows], field.type) for place, field in enumerate(kinds)}


def _reader(stream: Stream) -> Callable[[bytes], _Values]:
    """What gives the values of a key, as one of the declared hashes says that it was written."""
    schemas = {schema.id: (schema, name) for name in each_of(stream.hash) if (schema := hash_schema(name))}

    def of_schema(data: bytes) -> _Values:
        if (id := schema_id(data)) not in schemas:
            raise ValueError(f"its key has the schema {id}, and key_schemas= names {', '.join(map(str, schemas))}")
        schema, name = schemas[id]
        return values_of(data, schema) if schema.framing is not Framing.JSON_SCHEMA else _of_object(data, 5, name)

    return of_schema if schemas else lambda data: _of_object(data, 0, stream.hash)


def _of_object(data: bytes, start: int, name: HashName) -> _Values:
    """The values of a JSON object behind so many bytes. Raises ValueError if a key of these is not written so."""
    found, fields = json.loads(data[start:]), hashed_columns(name)
    if not isinstance(found, dict) or tuple(found) != fields:
        raise ValueError(f"its key is no JSON object with the fields {', '.join(fields)}, in this order and no others")
    values = list(found.values())
    if written_key(json.dumps(values, ensure_ascii=False), name) != data:
        raise ValueError(
            "its key is a JSON object that is not written as declared: without spaces, and escaped as little"
        )
    return values


def _column(values: _Values, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except _NOT_SO:
        for number, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _NOT_SO:
                raise Wrong(number, f"{value!r} of its key is no {kind}") from None
        raise


def _plain(written: Sequence[bytes | None], key_format: KeyFormat) -> pa.Array:
    """Keys as Kafka's serialisers write them. Raises Wrong at the first of another format."""
    match key_format:
        case KeyFormat.BYTES:
            return pa.array(written, pa.binary())
        case KeyFormat.STRING | KeyFormat.UUID:
            return _read(written, lambda key: str(key, "utf-8"), pa.string(), key_format)
        case KeyFormat.LONG:
            return _read(written, _unpacked(">q"), pa.int64(), key_format)
        case KeyFormat.INT:
            return _read(written, _unpacked(">i"), pa.int32(), key_format)
        case KeyFormat.DOUBLE:
            return _read(written, _unpacked(">d"), pa.float64(), key_format)


def _unpacked(layout: str) -> Callable[[bytes], object]:
    packed = struct.Struct(layout)
    return lambda key: packed.unpack(key)[0]


def _read(
    written: Sequence[bytes | None], read: Callable[[bytes], object], kind: pa.DataType, key_format: KeyFormat
) -> pa.Array:
    try:
        return pa.array([None if key is None else read(key) for key in written], kind)
    except _ERRORS:
        number = first_wrong(written, read, _ERRORS).number
        raise Wrong(number, f"the key is not of the declared format {key_format.value!r}") from None


class Wrong(Exception):
    """Raised if the record with this index, in what is read together, cannot be read; what to do, if that is known."""

    def __init__(self, number: int, what: str, then: str = "") -> None:
        super().__init__(what)
        self.number = number
        self.what = what
        self.then = then


def first_wrong(
    written: Sequence[bytes | None], read: Callable[[bytes], object], errors: tuple[type[Exception], ...]
) -> Wrong:
    """The first that `read` cannot read, and its error."""
    for number, data in enumerate(written):
        try:
            if data is not None:
                read(data)
        except errors as error:
            return Wrong(number, str(error).partition("\n")[0], getattr(error, "then", ""))
    raise AssertionError
