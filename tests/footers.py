"""Footers of Parquet files that say something else than their writer wrote: Thrift's compact protocol, read and
written again."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

# A struct by the numbers of its fields, each with its type; a list with the type of its elements.
Struct = dict[int, tuple[int, Any]]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

# Numbers of fields in parquet.thrift.
NUM_ROWS, ROW_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_ROWS = 1, 3
META_DATA, NUM_VALUES = 3, 5


def with_footer(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """The Parquet file with its footer changed."""
    size = struct.unpack("<I", data[-8:-4])[0]
    footer = _read_struct(io.BytesIO(data[-8 - size : -8]))
    change(footer)
    written = _struct(footer)
    return data[: -8 - size] + written + struct.pack("<I", len(written)) + b"PAR1"


def of_no_records(footer: Struct) -> None:
    """Have the file say that it holds no records; its row groups say otherwise."""
    footer[NUM_ROWS] = 6, 0


def _read_struct(source: io.BytesIO) -> Struct:
    fields: Struct = {}
    number = 0
    while head := source.read(1)[0]:
        kind = head & 15
        number = number + (head >> 4) if head >> 4 else _zigzag(_read_varint(source))
        fields[number] = kind, kind == _TRUE if kind in (_TRUE, _FALSE) else _read(source, kind)
    return fields


def _read(source: io.BytesIO, kind: int) -> Any:
    match kind:
        case 3 | 7:
            return source.read(1 if kind == _BYTE else 8)
        case 8:
            return source.read(_read_varint(source))
        case 9 | 10:
            head = source.read(1)[0]
            count = head >> 4 if head >> 4 < 15 else _read_varint(source)
            one = head & 15
            return one, [source.read(1) if one in (_TRUE, _FALSE) else _read(source, one) for _ in range(count)]
        case 12:
            return _read_struct(source)
        case _:
            return _zigzag(_read_varint(source))


def _struct(fields: Struct) -> bytes:
    made, before = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if value else _FALSE
        made += bytes([(number - before) << 4 | kind]) + (b"" if kind in (_TRUE, _FALSE) else _written(kind, value))
        before = number
    return made + b"\0"


def _written(kind: int, value: Any) -> bytes:
    match kind:
        case 3 | 7:
            return bytes(value)
        case 8:
            return _varint(len(value)) + value
        case 9 | 10:
            one, values = value
            head = bytes([len(values) << 4 | one]) if len(values) < 15 else bytes([0xF0 | one]) + _varint(len(values))
            return head + b"".join(each if one in (_TRUE, _FALSE) else _written(one, each) for each in values)
        case 12:
            return _struct(value)
        case _:
            return _varint((value << 1) ^ (value >> 63))


def _read_varint(source: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = source.read(1)[0]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value


def _varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])


def _zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


SCHEMA, TYPE, TYPE_LENGTH, ELEMENT_REPETITION, ELEMENT_NAME, CONVERTED, LOGICAL = 2, 1, 2, 3, 4, 6, 10
META_TYPE, META_STATISTICS = 1, 12
FLBA, INT96 = 7, 3
_JULIAN_EPOCH, _DAY = 2_440_588, 86_400 * 10**9


def int96(nanos: int) -> bytes:
    """A time as Hive, Impala and Spark write it, by the nanoseconds since 1970."""
    days, of_day = divmod(nanos, _DAY)
    return struct.pack("<qI", of_day, days + _JULIAN_EPOCH)


def as_int96(data: bytes) -> bytes:
    """A Parquet file, plain and without its Arrow schema, whose columns of 12 bytes are of INT96."""

    def change(footer: Struct) -> None:
        for element in footer[SCHEMA][1][1]:
            if element.get(TYPE) == (5, FLBA) and element[TYPE_LENGTH] == (5, 12):
                element[TYPE] = 5, INT96
                del element[TYPE_LENGTH]
        for group in footer[ROW_GROUPS][1][1]:
            for column in group[GROUP_COLUMNS][1][1]:
                meta = column[META_DATA][1]
                if meta[META_TYPE] == (5, FLBA):
                    meta[META_TYPE] = 5, INT96
                    meta.pop(META_STATISTICS, None)

    return with_footer(data, change)


def with_enums(footer: Struct) -> None:
    """Have all text of the file be enums, as Avro's writer and Go's have them."""
    for element in footer[SCHEMA][1][1]:
        if element.get(CONVERTED) == (5, 0):
            element[CONVERTED], element[LOGICAL] = (5, 4), (_STRUCT, {4: (_STRUCT, {})})
