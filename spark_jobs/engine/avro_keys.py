"""Records in Avro behind a registry's id, which keys are, whole Arrow arrays at once.

The scalar twin is `framed` in `partitioning/framed_keys.py`. Tests compare both.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from partitioning.framed_keys import frame
from partitioning.model.key_schemas import KeySchema

_QUOTE, _COMMA, _BACKSLASH, _OPEN, _CLOSE, _MINUS, _NOUGHT, _NULL = np.frombuffer(b'",\\[]-0n', np.uint8)
_TRUE, _FALSE, _UNICODE = np.frombuffer(b"tfu", np.uint8)
# What escapes of one letter stand for; others stand for themselves.
_ESCAPED = np.arange(256, dtype=np.uint8)
_ESCAPED[np.frombuffer(b"bfnrt", np.uint8)] = np.frombuffer(b"\b\f\n\r\t", np.uint8)
# Whole numbers by their bits.
_TEXT, _TRUTH = 0, 1
_TYPES = {"string": _TEXT, "boolean": _TRUTH, "int": 32, "long": 64}
_NEVER = -1
# What stands before the text of a field at most, or in place of it.
_MOST = 12


def avro_records(
    starts: np.ndarray, data: np.ndarray, valid: np.ndarray, schema: KeySchema
) -> tuple[np.ndarray, np.ndarray] | None:
    """The record of each key that is `valid`: key i is `data[starts[i]:starts[i + 1]]`, a JSON array in the form of
    `partitioning.model.composite_key`, and so is the record in what is returned.

    None if there is a key that is no such record.
    """
    head = np.frombuffer(frame(schema), np.uint8)
    kinds = np.array([_TYPES[field.type] for field in schema.fields], np.int64)
    nulls = np.array([_NEVER if field.null is None else field.null for field in schema.fields], np.int64)
    ends = np.zeros(len(starts), np.int64)
    size = (len(starts) - 1) * (len(head) + _MOST * len(kinds)) + int(starts[-1]) - int(starts[0])
    made = np.empty(size, np.uint8)
    if not _written(starts, data, valid, head, kinds, nulls, ends, made):
        return None
    return ends, made


@njit(cache=True, nogil=True)
def _varint(number, made, to):  # type: ignore[no-untyped-def]
    """Writes an unsigned number; where it ends."""
    while number > np.uint64(0x7F):
        made[to] = np.uint8(number & np.uint64(0x7F)) | np.uint8(0x80)
        number = number >> np.uint64(7)
        to += 1
    made[to] = np.uint8(number)
    return to + 1


@njit(cache=True, nogil=True)
def _number(data, at, end, bits, made, to):  # type: ignore[no-untyped-def]
    """Writes the number that begins here, in so many bits; where it ends in the text, 0 if it is none, and what is
    made."""
    negative = data[at] == _MINUS
    at += negative
    begin, value = at, np.uint64(0)
    while at < end and _NOUGHT <= data[at] <= _NOUGHT + np.uint8(9) and at - begin < 19:
        value = value * np.uint64(10) + np.uint64(data[at] - _NOUGHT)
        at += 1
    most = (np.uint64(1) << np.uint64(bits - 1)) - np.uint64(not negative)
    if at == begin or value > most:
        return 0, to
    zigzag = value << np.uint64(1)
    return at, _varint(zigzag - np.uint64(1) if negative and value else zigzag, made, to)


@njit(cache=True, nogil=True)
def _text(data, at, end, made, to):  # type: ignore[no-untyped-def]
    """Writes the text that begins here and how long it is; where it ends, 0 if it is none, and what is made."""
    if data[at] != _QUOTE:
        return 0, to
    length, byte = 0, at + 1
    while byte < end and data[byte] != _QUOTE:
        if data[byte] == _BACKSLASH:
            byte += 5 if data[byte + 1] == _UNICODE else 1
        byte += 1
        length += 1
    if byte >= end:
        return 0, to
    to = _varint(np.uint64(length) << np.uint64(1), made, to)
    at += 1
    while at < byte:
        letter = data[at]
        if letter == _BACKSLASH:
            at += 1
            letter = _ESCAPED[data[at]]
            if data[at] == _UNICODE:
                low = data[at + 4]
                # Only characters below U+0020 are written so.
                if data[at + 1] != _NOUGHT or data[at + 2] != _NOUGHT or data[at + 3] > _NOUGHT + np.uint8(1):
                    return 0, to
                letter = (data[at + 3] & np.uint8(1)) << np.uint8(4)
                letter |= low & np.uint8(0xF) if low <= _NOUGHT + np.uint8(9) else (low & np.uint8(7)) + np.uint8(9)
                at += 4
        made[to] = letter
        to += 1
        at += 1
    return byte + 1, to


@njit(cache=True, nogil=True)
def _written(starts, data, valid, head, kinds, nulls, ends, made):  # type: ignore[no-untyped-def]  # noqa: C901
    """Writes all records, and where each ends; whether all keys are such records."""
    to = 0
    for i in range(len(starts) - 1):
        if not valid[i]:
            ends[i + 1] = to
            continue
        at, end = starts[i], starts[i + 1] - 1
        if end - at < 2 or data[at] != _OPEN or data[end] != _CLOSE:
            return False
        for byte in head:
            made[to] = byte
            to += 1
        for field in range(len(kinds)):
            # A bracket, then commas stand before values.
            if at >= end - 1 or (field > 0 and data[at] != _COMMA):
                return False
            at += 1
            if data[at] == _NULL:
                if nulls[field] == _NEVER:
                    return False
                to = _varint(np.uint64(2 * nulls[field]), made, to)
                at += 4
                continue
            if nulls[field] != _NEVER:
                to = _varint(np.uint64(2 - 2 * nulls[field]), made, to)
            if kinds[field] == _TEXT:
                at, to = _text(data, at, end, made, to)
            elif kinds[field] != _TRUTH:
                at, to = _number(data, at, end, kinds[field], made, to)
            elif data[at] == _TRUE or data[at] == _FALSE:
                made[to] = data[at] == _TRUE
                at += 4 if data[at] == _TRUE else 5
                to += 1
            else:
                return False
            if at == 0:
                return False
        if at != end:
            return False
        ends[i + 1] = to
    return True
