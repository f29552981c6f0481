"""The bytes that producers make of a key which is more than one plain value, one key at a time: JSON objects, and what
the serialisers of a schema registry write.

Avro 1.12 (specification, "Binary encoding"), Protobuf's wire format (protobuf.dev, "Encoding") and Confluent's frame
before both. What real serialisers wrote is in `tests/vectors/framed-keys`.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from partitioning.model.placement import HashName, hash_schema, json_fields

FRAME = struct.Struct(">bI")


def utf16(text: object) -> tuple[int, ...]:
    """A text as Java has it: numbers of 16 bits."""
    data = str(text).encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)


def frame(schema: KeySchema) -> bytes:
    """What stands before each key: a zero byte, the schema's id and, in Protobuf, which message of its file it is.

    >>> frame(KeySchema(Framing.AVRO, 7, ())).hex(), frame(KeySchema(Framing.PROTOBUF, 6, (), (3,))).hex()
    ('0000000007', '00000000060206')
    """
    head = FRAME.pack(0, schema.id)
    if schema.framing is not Framing.PROTOBUF:
        return head
    # The first message, which most are, is written as a list of none.
    indexes = () if schema.message == (0,) else schema.message
    return head + b"".join(map(_zigzag, (len(indexes), *indexes)))


def framed(values: Sequence[object], schema: KeySchema) -> bytes:
    """The bytes of a key in Avro or Protobuf whose fields have these values.

    >>> framed([1001], KeySchema(Framing.AVRO, 7, (KeyField("", "long"),))).hex()
    '0000000007d20f'

    Raises ValueError if a field cannot have its value.
    """
    written = _protobuf if schema.framing is Framing.PROTOBUF else _avro
    fields = sorted(zip(schema.fields, values, strict=True), key=lambda pair: pair[0].number)
    return frame(schema) + b"".join(written(field, value) for field, value in fields)


def framed_id(data: bytes) -> int | None:
    """The schema's id behind the frame of a key or value; None if it has none.

    >>> framed_id(bytes.fromhex("0000000007d20f")), framed_id(b"ann")
    (7, None)
    """
    if len(data) < FRAME.size or data[0]:
        return None
    found: int = FRAME.unpack_from(data)[1]
    return found


def schema_id(data: bytes) -> int:
    """The id with which a key begins. Raises ValueError if it begins with none.

    >>> schema_id(bytes.fromhex("0000000007d20f"))
    7
    """
    found = framed_id(data)
    if found is None:
        raise ValueError("the key does not begin with the id of a schema")
    return found


def message_of(data: bytes) -> tuple[int, ...]:
    """Which message of its file a key in Protobuf is, by its indexes.

    >>> message_of(bytes.fromhex("0000000006020608e907")), message_of(bytes.fromhex("00000000060008e907"))
    ((3,), (0,))

    Raises ValueError for a key that ends before.
    """
    body = io.BytesIO(data[FRAME.size :])
    return tuple(_from_zigzag(_number(body)) for _ in range(_from_zigzag(_number(body)))) or (0,)


def values_of(data: bytes, schema: KeySchema) -> list[object]:
    """The values of the fields of a key in Avro or Protobuf, as `framed` has them.

    >>> values_of(bytes.fromhex("0000000007d20f"), KeySchema(Framing.AVRO, 7, (KeyField("", "long"),)))
    [1001]

    Raises ValueError for bytes that `framed` does not make.
    """
    body, read = io.BytesIO(data[len(frame(schema)) :]), []
    if schema.framing is Framing.PROTOBUF:
        read = _of_message(body, schema.fields)
    else:
        read = [_of_avro(body, field) for field in schema.fields]
    if framed(read, schema) != data:
        raise ValueError(f"the key is not written as {schema} says")
    return read


def _of_avro(body: BinaryIO, field: KeyField) -> object:
    if field.null is not None and _from_zigzag(_number(body)) == field.null:
        return None
    match field.type:
        case "string":
            return body.read(_from_zigzag(_number(body))).decode()
        case "boolean":
            return body.read(1) == b"\1"
        case _:
            return _from_zigzag(_number(body))


def _of_message(body: BinaryIO, fields: Sequence[KeyField]) -> list[object]:
    there = dict[int, object]()
    kinds = {field.number: field.type for field in fields}
    while tag := _number(body, at_end=0):
        number, kind = tag >> 3, kinds.get(tag >> 3, "")
        match tag & 7:
            case 0:
                there[number] = _from_varint(_number(body), kind)
            case 2:
                there[number] = body.read(_number(body)).decode()
            case wire:
                there[number] = int.from_bytes(body.read(8 if wire == 1 else 4), "little", signed=kind[0:1] == "s")
    return [
        there.get(field.number, None if field.null is not None else _DEFAULTS.get(field.type, 0)) for field in fields
    ]


_DEFAULTS: Mapping[str, object] = {"string": "", "bool": False}


def _from_varint(number: int, kind: str) -> object:
    if kind == "bool":
        return bool(number)
    if kind.startswith("sint"):
        return _from_zigzag(number)
    return number - (1 << 64) if kind.startswith("int") and number >= 1 << 63 else number


def _number(body: BinaryIO, at_end: int | None = None) -> int:
    """The next varint. Raises ValueError at the end, unless that means a number."""
    number = shift = 0
    while True:
        byte = body.read(1)
        if not byte:
            if at_end is None or shift:
                raise ValueError("the key ends within a value")
            return at_end
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
        shift += 7


def _from_zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _avro(field: KeyField, value: object) -> bytes:
    if field.null is None:
        return _AVRO_TYPES[field.type](value)
    return _zigzag(field.null) if value is None else _zigzag(1 - field.null) + _AVRO_TYPES[field.type](value)


def _protobuf(field: KeyField, value: object) -> bytes:
    # A field without `optional` is left out if its value is the default of its type.
    if value is None or (field.null is None and not value):
        return b""
    wire, written = _PROTOBUF_TYPES[field.type]
    return _varint(field.number << 3 | wire) + written(value)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else ~number << 1 | 1)


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value.encode()


def _whole(least: int, most: int, written: Callable[[int], bytes]) -> Callable[[object], bytes]:
    """Writes whole numbers within these bounds."""

    def within(value: object) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"{value!r} is no whole number from {least} to {most}")
        return written(value)

    return within


def _truth(value: object) -> bytes:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return bytes([value])


def _avro_text(value: object) -> bytes:
    data = _text(value)
    return _zigzag(len(data)) + data


def _protobuf_text(value: object) -> bytes:
    data = _text(value)
    return _varint(len(data)) + data


def _signed(bits: int, written: Callable[[int], bytes]) -> Callable[[object], bytes]:
    return _whole(-(1 << bits - 1), (1 << bits - 1) - 1, written)


def _unsigned(bits: int, written: Callable[[int], bytes]) -> Callable[[object], bytes]:
    return _whole(0, (1 << bits) - 1, written)


def _twos_complement(number: int) -> bytes:
    return _varint(number & 0xFFFFFFFFFFFFFFFF)


_AVRO_TYPES: Mapping[str, Callable[[object], bytes]] = {
    "string": _avro_text,
    "int": _signed(32, _zigzag),
    "long": _signed(64, _zigzag),
    "boolean": _truth,
}
# Each with its wire type.
_PROTOBUF_TYPES: Mapping[str, tuple[int, Callable[[object], bytes]]] = {
    "string": (2, _protobuf_text),
    "bool": (0, _truth),
    "int32": (0, _signed(32, _twos_complement)),
    "int64": (0, _signed(64, _twos_complement)),
    "uint32": (0, _unsigned(32, _varint)),
    "uint64": (0, _unsigned(64, _varint)),
    "sint32": (0, _signed(32, _zigzag)),
    "sint64": (0, _signed(64, _zigzag)),
    "fixed32": (5, _unsigned(32, struct.Struct("<I").pack)),
    "fixed64": (1, _unsigned(64, struct.Struct("<Q").pack)),
    "sfixed32": (5, _signed(32, struct.Struct("<i").pack)),
    "sfixed64": (1, _signed(64, struct.Struct("<q").pack)),
}
# What keys in Avro and in Protobuf can be made of.
AVRO_TYPES, PROTOBUF_TYPES = tuple(_AVRO_TYPES), tuple(_PROTOBUF_TYPES)


def column_type(kind: str) -> str:
    """The DuckDB type of the column that has such a field's values.

    >>> [column_type(kind) for kind in ("long", "fixed32", "bool", "string")]
    ['BIGINT', 'UINTEGER', 'BOOLEAN', 'VARCHAR']
    """
    if kind in {"string", "bool", "boolean"}:
        return "VARCHAR" if kind == "string" else "BOOLEAN"
    unsigned = "U" if kind.startswith(("u", "f")) else ""
    return f"{unsigned}BIGINT" if kind == "long" or kind.endswith("64") else f"{unsigned}INTEGER"


def json_object(key: str, fields: Sequence[str]) -> bytes:
    """The JSON object that Jackson writes of a key of several columns: their values under these names, in this order.

    Jackson writes the keys of Kafka Connect's JsonConverter, of Flink's and of ksqlDB's format `json` (2.17,
    `UTF8JsonGenerator`). Of what others may leave as it is, it escapes characters beyond U+FFFF, each as two.

    >>> json_object('["ann","DE",null]', ["customer", "country", "zip"])
    b'{"customer":"ann","country":"DE","zip":null}'

    Raises Refused for a text that is no array of so many texts, whole numbers, truth values or nulls.
    """
    values = _key_values(key, len(fields))
    pairs = zip(fields, values, strict=True)
    return f"{{{','.join(f'{_jackson(name)}:{_jackson(value)}' for name, value in pairs)}}}".encode()


def written_key(key: object, name: HashName) -> bytes:
    """The bytes that a producer made of a key, by the name of the hash that is of them: a JSON object, or what the
    serialiser of a schema registry wrote.

    >>> written_key(1001, HashName("murmur2 of avro 7(long)")).hex()
    '0000000007d20f'

    Raises Refused for a key that cannot be written so.
    """
    schema = hash_schema(name)
    if schema is None:
        return json_object(str(key), json_fields(name))
    if schema.framing is Framing.JSON_SCHEMA:
        return frame(schema) + json_object(str(key), schema.columns)
    values = _key_values(str(key), len(schema.fields)) if schema.columns else [key]
    try:
        return framed(values, schema)
    except ValueError as error:
        then = "correct the key, or key_schemas= of its stream"
        raise Refused.of(Kind.KEY, f"{key!r} is no key of {schema}: {error}", "key", then, key=key) from error


def _key_values(key: str, count: int) -> list[object]:
    """The values of a key of so many columns. Raises Refused if it is none."""
    try:
        values = json.loads(key)
    except ValueError:
        values = None
    if not isinstance(values, list) or len(values) != count or not all(map(_in_json, values)):
        what = f"{key!r} is no key of {count} columns: not an array of so many texts, whole numbers or truths"
        raise Refused.of(Kind.KEY, what, "key", "correct what makes the key", key=key)
    return values


def json_text(text: str) -> str:
    """A text in JSON, as Jackson writes it.

    >>> print(json_text('a"\\u001f\U0001f600é'))
    "a\\"\\u001F\\uD83D\\uDE00é"
    """
    return f'"{"".join(map(_escaped, text))}"'


def _jackson(value: object) -> str:
    return json_text(value) if isinstance(value, str) else json.dumps(value)


def _in_json(value: object) -> bool:
    return value is None or isinstance(value, str | int)


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if " " <= character <= "\uffff":
        return character
    return "".join(f"\\u{unit:04X}" for unit in utf16(character))


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
