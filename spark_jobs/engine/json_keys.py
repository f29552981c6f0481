"""Keys of several columns as the JSON objects of their producers, whole Arrow arrays at once.

The scalar twin is `json_object` in `partitioning/hashes.py`. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from partitioning.framed_keys import json_object, json_text

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_QUOTE, _COMMA, _BACKSLASH, _OPEN, _CLOSE = np.frombuffer(b'",\\[]', np.uint8)
_BRACE = np.uint8(ord("}"))
# A character of four bytes in UTF-8 becomes two escapes of six.
_ESCAPED = 12


def json_objects(
    keys: pa.Array, starts: np.ndarray, data: np.ndarray, fields: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The object of each key: key i is `data[starts[i]:starts[i + 1]]`, a JSON array in the form of
    `partitioning.model.composite_key`, and so is the object in what is returned.

    Raises Refused for the first key that is no array of as many values as there are fields.
    """
    texts = [f"{'{' if number == 0 else ','}{json_text(name)}:".encode() for number, name in enumerate(fields)]
    names = np.frombuffer(b"".join(texts), np.uint8)
    begins = np.array([0, *np.cumsum([len(text) for text in texts])], np.int64)
    ends = np.zeros(len(starts), np.int64)
    if not _measured(starts, data, begins, ends):
        # What is measured as no object is 0 bytes long, as is what stands for a null.
        lengths = np.diff(ends)
        for row in np.flatnonzero(lengths == 0):
            if keys[row].is_valid:
                json_object(str(keys[row].as_py()), fields)
    made = np.empty(ends[-1], np.uint8)
    _written(starts, data, names, begins, ends, made)
    return ends, made


@njit(cache=True, nogil=True)
def _measured(starts, data, begins, ends):  # type: ignore[no-untyped-def]  # noqa: C901
    """Fills in where each object ends; whether all keys are arrays of so many values."""
    all_are, fields = True, len(begins) - 1
    for i in range(len(starts) - 1):
        at, end = starts[i], starts[i + 1]
        length, values, within, escaped = 0, 1, False, False
        fits = end - at >= 3 and data[at] == _OPEN and data[end - 1] == _CLOSE
        for byte in range(at + 1, end - 1):
            if within:
                if escaped:
                    escaped = False
                elif data[byte] == _BACKSLASH:
                    escaped = True
                elif data[byte] == _QUOTE:
                    within = False
                elif data[byte] >= 0xF0 and byte + 3 < end:
                    length += _ESCAPED - 4
            elif data[byte] == _QUOTE:
                within = True
            elif data[byte] == _COMMA:
                values += 1
        if fits and values == fields and not within:
            # In place of each bracket and comma but the last stands a field's name.
            length += end - at - fields + begins[fields]
        else:
            all_are, length = False, 0
        ends[i + 1] = ends[i] + length
    return all_are


@njit(cache=True, nogil=True)
def _written(starts, data, names, begins, ends, made):  # type: ignore[no-untyped-def]  # noqa: C901
    for i in range(len(starts) - 1):
        if ends[i] == ends[i + 1]:
            continue
        at, end, to, field, within, escaped = starts[i], starts[i + 1], ends[i], 0, False, False
        while at < end - 1:
            byte = data[at]
            if not within and (field == 0 or byte == _COMMA):
                for name in range(begins[field], begins[field + 1]):
                    made[to] = names[name]
                    to += 1
                field += 1
            elif within and not escaped and byte >= 0xF0 and at + 3 < end:
                code = (byte & 0x07) << 18 | (data[at + 1] & 0x3F) << 12
                code |= (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F
                for unit in (0xD7C0 + (code >> 10), 0xDC00 | code & 0x3FF):
                    made[to], made[to + 1] = _BACKSLASH, 0x75
                    for digit in range(4):
                        made[to + 2 + digit] = _HEX[unit >> (12 - 4 * digit) & 0xF]
                    to += 6
                at += 3
            else:
                if within:
                    within = escaped or byte != _QUOTE
                    escaped = not escaped and byte == _BACKSLASH
                elif byte == _QUOTE:
                    within = True
                made[to] = byte
                to += 1
            at += 1
        made[to] = _BRACE
