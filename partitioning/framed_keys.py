"""The bytes that the serialisers of a schema registry make of a key, one key at a time.

Avro 1.12 (specification, "Binary encoding"), Protobuf's wire format (protobuf.dev, "Encoding") and Confluent's frame
before both. What real serialisers wrote is in `tests/vectors/framed-keys`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from partitioning.model.key_schemas import Framing, KeyField, KeySchema

_FRAME = struct.Struct(">bI")


def frame(schema: KeySchema) -> bytes:
    """What stands before each key: a zero byte, the schema's id and, in Protobuf, which message of its file it is.

    >>> frame(KeySchema(Framing.AVRO, 7, ())).hex(), frame(KeySchema(Framing.PROTOBUF, 6, (), (3,))).hex()
    ('0000000007', '00000000060206')
    """
    head = _FRAME.pack(0, schema.id)
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
