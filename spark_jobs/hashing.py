"""The placement hash of whole Arrow arrays: Kafka's murmur2, compiled, straight over Arrow's buffers.

The scalar twin and the source are in `partitioning/placement.py`; tests hold the two against each other.
"""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from partitioning.errors import Finding, Refused

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)

_FIXED = {"long": (pa.int64(), ">i8"), "int": (pa.int32(), ">i4"), "double": (pa.float64(), ">f8")}
_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_UUID_TEXT = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def placement_hashes(keys: pa.Array, key_format: str) -> np.ndarray:
    """h(k) of each key, as uint32 of 31 bits. Where a key is null, the value means nothing.

    Raises Refused if keys of this type cannot be of `key_format`.
    """
    starts, data = _serialised(keys, key_format)
    return _murmur2_all(starts, data)


def _serialised(keys: pa.Array, key_format: str) -> tuple[np.ndarray, np.ndarray]:
    """The keys as Kafka's serialiser writes them: key i is `data[starts[i]:starts[i + 1]]`."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    try:
        if pa.types.is_null(keys.type):
            return np.zeros(len(keys) + 1, np.int64), np.zeros(0, np.uint8)
        if key_format in _FIXED:
            return _fixed(keys, *_FIXED[key_format])
        return _variable(_BY_FORMAT[key_format](keys))
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise Refused(
            Finding(f"keys of type {keys.type} are not {key_format} keys: {error}", "key", "correct the key format")
        ) from error


def _fixed(keys: pa.Array, kind: pa.DataType, big_endian: str) -> tuple[np.ndarray, np.ndarray]:
    fits = pa.types.is_integer(keys.type) or (pa.types.is_floating(kind) and pa.types.is_floating(keys.type))
    if not fits:
        raise TypeError("other numbers are needed")
    values = keys.cast(kind)
    # The buffer and not to_numpy(), which would turn integers with nulls into floats.
    native = np.frombuffer(values.buffers()[1] or b"", np.dtype(big_endian).newbyteorder("="))
    ordered = native[values.offset : values.offset + len(values)].astype(big_endian)
    if pa.types.is_floating(kind):
        ordered[np.isnan(ordered)] = np.nan  # Java's doubleToLongBits knows one NaN only.
    return np.arange(len(values) + 1, dtype=np.int64) * ordered.itemsize, ordered.view(np.uint8)


def _variable(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    wide = pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type)
    _, offsets, data = keys.buffers()
    if not len(keys):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64 if wide else np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return starts, np.frombuffer(data or b"", np.uint8)


def _strings(keys: pa.Array) -> pa.Array:
    if not any(is_text(keys.type) for is_text in _IS_TEXT):
        raise TypeError("text is needed")
    return keys.cast(pa.large_string()) if pa.types.is_string_view(keys.type) else keys


def _binaries(keys: pa.Array) -> pa.Array:
    if pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type):
        return keys
    if pa.types.is_fixed_size_binary(keys.type) or pa.types.is_binary_view(keys.type):
        return keys.cast(pa.large_binary())
    raise TypeError("bytes are needed")


def _uuids(keys: pa.Array) -> pa.Array:
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    if pa.types.is_fixed_size_binary(keys.type):
        return pa.array([None if key is None else str(uuid.UUID(bytes=key)) for key in keys.to_pylist()], pa.string())
    texts = _strings(keys)
    if pc.all(pc.match_substring_regex(texts, _UUID_TEXT), min_count=0).as_py():
        return texts
    return pa.array([None if key is None else str(uuid.UUID(key)) for key in texts.to_pylist()], pa.string())


_BY_FORMAT = {"string": _strings, "bytes": _binaries, "uuid": _uuids}


def key_texts(keys: pa.Array, key_format: str) -> pa.Array:
    """Keys as receipts and audit tables write them; `partitioning.placement.read_key` reads them back."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if key_format == "bytes":
        return pa.array([None if key is None else key.hex() for key in keys.to_pylist()], pa.string())
    return (_uuids(keys) if key_format == "uuid" else keys).cast(pa.string())


@njit(cache=True, nogil=True)
def _murmur2_all(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    # Unsigned positions spare the test for negative ones at each byte, which doubles the speed.
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for i in range(len(hashes)):
        at, end = np.uint64(starts[i]), np.uint64(starts[i + 1])
        h = np.uint32(_SEED ^ np.uint32(end - at))
        whole = at + ((end - at) & ~three)
        while at < whole:
            k = np.uint32(
                np.uint32(data[at])
                | np.uint32(data[at + one]) << np.uint32(8)
                | np.uint32(data[at + two]) << np.uint32(16)
                | np.uint32(data[at + three]) << np.uint32(24)
            )
            k = np.uint32(k * _M)
            k = np.uint32((k ^ (k >> np.uint32(24))) * _M)
            h = np.uint32(np.uint32(h * _M) ^ k)
            at += four
        if at < end:
            tail, shift = np.uint32(0), np.uint32(0)
            while at < end:
                tail |= np.uint32(np.uint32(data[at]) << shift)
                shift += np.uint32(8)
                at += one
            h = np.uint32((h ^ tail) * _M)
        h = np.uint32((h ^ (h >> np.uint32(13))) * _M)
        hashes[i] = (h ^ (h >> np.uint32(15))) & _POSITIVE
    return hashes
