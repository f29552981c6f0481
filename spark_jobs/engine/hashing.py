"""The placement hash of whole Arrow arrays, compiled, over Arrow's buffers.

The scalar twins and their sources are in `partitioning/hashes.py`. Tests compare both.
"""

from __future__ import annotations

import math
import uuid
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from partitioning.errors import Refused
from partitioning.framed_keys import written_key
from partitioning.hashes import custom_hash
from partitioning.imports import imported
from partitioning.kinds import Kind
from partitioning.model.key_schemas import Framing
from partitioning.model.placement import (
    CRC32,
    CRC32_CONSISTENT,
    FNV1A,
    FNV1A_MASKED,
    ICEBERG,
    JAVA,
    JAVA_MASKED,
    MURMUR2,
    MURMUR2_KAFKAJS1,
    MURMUR2_UNSIGNED,
    MURMUR3,
    HashName,
    hash_findings,
    hash_of_bytes,
    hash_schema,
    json_fields,
    keeps_empty,
    newest_of,
)
from spark_jobs.engine.avro_keys import avro_records
from spark_jobs.engine.json_keys import json_objects

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
# What eight steps of CRC32 make of each byte, which all of its implementations keep.
_CRC32 = np.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], np.uint32)

_FIXED = {"long": (pa.int64(), ">i8"), "int": (pa.int32(), ">i4"), "double": (pa.float64(), ">f8")}
_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_UUID_TEXT = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def placement_hashes(keys: pa.Array, key_format: str, placement: str = MURMUR2) -> np.ndarray:
    """h(k) of each key: uint32, or uint64 by a user's function. Equal keys have equal hashes.

    The hash of a null key has no meaning. Raises Refused if keys of this type do not fit `key_format`, or if the
    placement does not hash that format.
    """
    starts, data = _read_only(*_serialised(keys, key_format))
    placement = newest_of(placement)
    if (of_bytes := hash_of_bytes(placement)) != placement:
        starts, data = _read_only(*_written(keys, starts, data, placement))
        placement = of_bytes
    if placement not in _SIGNED:
        return _custom(keys, starts, data, key_format, placement)
    if findings := tuple(hash_findings(placement, key_format, "key")):
        raise Refused(*findings)
    if placement == ICEBERG:
        starts, data = _read_only(*_in_iceberg(starts, data, key_format))
    hashed = _OF_BYTES.get(placement) or _OF_JAVA.get(key_format, _java_numbers)
    return _SIGNED[placement](np.asarray(hashed(starts, data)))


def keyed(keys: pa.Array, hashes: np.ndarray, placement: str) -> np.ndarray:
    """Whether each record has a key that its producer went by; empty if all have one. `hashes` are those of `keys`."""
    flags = keys.is_valid()
    # Those that could be empty, to whose hash this has come.
    zero = np.flatnonzero(hashes == 0) if not keeps_empty(placement) else ()
    if len(zero):
        few = keys.take(pa.array(zero))
        few = few.dictionary_decode() if pa.types.is_dictionary(few.type) else few
        empty = [len(key) == 0 if isinstance(key, str | bytes) else False for key in few.to_pylist()]
        some: np.ndarray = flags.to_numpy(zero_copy_only=False).copy()
        some[zero[np.array(empty)]] = False
        return np.empty(0, np.bool_) if some.all() else some
    if keys.null_count == 0:
        return np.empty(0, np.bool_)
    every: np.ndarray = flags.to_numpy(zero_copy_only=False)
    return every


def _written(keys: pa.Array, starts: np.ndarray, data: np.ndarray, name: HashName) -> tuple[np.ndarray, np.ndarray]:
    """The bytes that producers made of keys by another rule than Kafka's serialisers, which gave `data`."""
    if fields := json_fields(name):
        return json_objects(keys, starts, data, fields)
    schema = hash_schema(name)
    if schema and schema.framing is Framing.AVRO and schema.columns:
        valid: np.ndarray = keys.is_valid().to_numpy(zero_copy_only=False)
        if records := avro_records(starts, data, valid, schema):
            return records
    coded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    written = pa.array([written_key(key, name) for key in coded.dictionary.to_pylist()], pa.large_binary())
    return _variable(pc.fill_null(written.take(coded.indices), b""))


def _in_iceberg(starts: np.ndarray, data: np.ndarray, key_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with their last byte first, and uuids as their 16 bytes, instead of their texts."""
    if key_format == "long":
        return starts, np.ascontiguousarray(data.view(">i8").astype("<i8")).view(np.uint8)
    texts = data[starts[0] : starts[-1]].tobytes().replace(b"-", b"")
    there = np.diff(starts) > 0
    return np.concatenate(([0], np.cumsum(there * 16))), np.frombuffer(bytes.fromhex(texts.decode()), np.uint8).copy()


def _custom(keys: pa.Array, starts: np.ndarray, data: np.ndarray, key_format: str, placement: str) -> np.ndarray:
    """The hashes by a user's function. It is called once for each distinct key."""
    where = f"placement {placement}"
    function = imported(placement, where, tasks=True)
    buffers = [None, pa.py_buffer(starts.astype(np.int64)), pa.py_buffer(data)]
    serialised = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    coded = pc.if_else(keys.is_valid(), serialised, None).dictionary_encode()
    hashes = [custom_hash(function, key, key_format, where) for key in coded.dictionary.to_pylist()]
    places: np.ndarray = pc.fill_null(coded.indices, len(hashes)).to_numpy()
    every = np.array([*hashes, 0], np.uint64)
    return np.asarray(every[places])


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
        what, then = f"keys of type {keys.type} are not {key_format} keys: {error}", "correct the key format"
        raise Refused.of(Kind.KEY, what, "key", then, type=keys.type, key_format=key_format) from error


def _read_only(starts: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same arrays, all read-only: functions are compiled anew for those that may be written to."""
    starts.flags.writeable = data.flags.writeable = False
    return starts, data


def _fixed(keys: pa.Array, kind: pa.DataType, big_endian: str) -> tuple[np.ndarray, np.ndarray]:
    fits = pa.types.is_integer(keys.type) or (pa.types.is_floating(kind) and pa.types.is_floating(keys.type))
    if not fits:
        raise TypeError("they are not numbers of that kind")
    values = keys.cast(kind)
    # to_numpy() would turn integers with nulls into floats, so this reads the buffer.
    native = np.frombuffer(values.buffers()[1] or b"", np.dtype(big_endian).newbyteorder("="))
    ordered = native[values.offset : values.offset + len(values)].astype(big_endian)
    if pa.types.is_floating(kind):
        ordered[np.isnan(ordered)] = np.nan  # Java's doubleToLongBits has one NaN.
        ordered += 0.0  # This makes 0.0 of -0.0, as `one_key` of the scalar twin does.
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
        raise TypeError("they are not text")
    return keys.cast(pa.large_string()) if pa.types.is_string_view(keys.type) else keys


def _binaries(keys: pa.Array) -> pa.Array:
    if pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type):
        return keys
    if pa.types.is_fixed_size_binary(keys.type) or pa.types.is_binary_view(keys.type):
        return keys.cast(pa.large_binary())
    raise TypeError("they are not bytes")


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


def one_of_equals(keys: pa.Array) -> pa.Array:
    """The keys with one spelling for those that are equal in SQL: 0.0 for -0.0, and one NaN.

    Only floats need this: other keys are equal in SQL if their bytes are.
    """
    if not pa.types.is_floating(keys.type):
        return keys
    return pc.if_else(pc.is_nan(keys), math.nan, pc.add(keys, pa.scalar(0.0, keys.type))).cast(keys.type)


def key_texts(keys: pa.Array, key_format: str) -> pa.Array:
    """Keys as receipts and audit tables write them; `partitioning.hashes.read_key` reads them back."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if key_format == "bytes":
        return pa.array([None if key is None else key.hex() for key in keys.to_pylist()], pa.string())
    return (_uuids(keys) if key_format == "uuid" else keys).cast(pa.string())


def _as_it_is(hashes: np.ndarray) -> np.ndarray:
    return hashes


def _masked(hashes: np.ndarray) -> np.ndarray:
    """Without the sign bit."""
    return hashes & _POSITIVE


def _absolute(hashes: np.ndarray) -> np.ndarray:
    """The absolute values of signed numbers: 2^31 of -2^31."""
    return np.asarray(np.minimum(hashes, np.uint32(0) - hashes))


def _absolute_in_java(hashes: np.ndarray) -> np.ndarray:
    """The absolute values of signed numbers, and 0 for -2^31, which Java has no absolute of."""
    return _masked(_absolute(hashes))


@njit(cache=True, nogil=True)
def _murmur2_all(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    # Unsigned positions save a test for negative ones at each byte, which doubles the speed.
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
        hashes[i] = h ^ (h >> np.uint32(15))
    return hashes


@njit(cache=True, nogil=True)
def _murmur2_in_floats_all(starts, data):  # type: ignore[no-untyped-def]
    """As KafkaJS 1.x: products are doubles, of which 32 bits go on; a last word that is not whole is taken twice."""
    hashes = np.empty(len(starts) - 1, np.uint32)
    m, low = np.float64(_M), np.int64(0xFFFFFFFF)
    for i in range(len(hashes)):
        at, end = starts[i], starts[i + 1]
        h, word = np.int64(np.int32(_SEED ^ np.uint32(end - at))), np.int64(0)
        for first in range(at, end, 4):
            word = np.int64(0)
            for byte in range(first, min(first + 4, end)):
                word |= np.int64(data[byte]) << np.int64(8 * (byte - first))
            k = np.int64(np.float64(np.int32(word)) * m)
            k = np.int64(np.float64(np.int32(k ^ ((k & low) >> 24))) * m)
            h = np.int64(np.int32(np.int64(np.float64(h) * m) ^ k))
        if (end - at) % 4:
            h = np.int64(np.float64(np.int32(h ^ word)) * m)
        h = np.int64(np.float64(np.int32(h ^ ((h & low) >> 13))) * m)
        hashes[i] = np.uint32(h ^ ((h & low) >> 15))
    return hashes


@njit(cache=True, nogil=True)
def _murmur3_all(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0)
        for first in range(starts[i], starts[i + 1], 4):
            k, last = np.uint32(0), min(first + 4, starts[i + 1])
            for byte in range(first, last):
                k |= np.uint32(np.uint32(data[byte]) << np.uint32(8 * (byte - first)))
            k = np.uint32(k * np.uint32(0xCC9E2D51))
            k = np.uint32((k << np.uint32(15)) | (k >> np.uint32(17)))
            h ^= np.uint32(k * np.uint32(0x1B873593))
            if last == first + 4:
                h = np.uint32((h << np.uint32(13)) | (h >> np.uint32(19)))
                h = np.uint32(h * np.uint32(5) + np.uint32(0xE6546B64))
        h ^= np.uint32(starts[i + 1] - starts[i])
        h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        h = np.uint32((h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        hashes[i] = h ^ (h >> np.uint32(16))
    return hashes


@njit(cache=True, nogil=True)
def _fnv1a_all(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0x811C9DC5)
        for at in range(starts[i], starts[i + 1]):
            h = np.uint32((h ^ np.uint32(data[at])) * np.uint32(0x01000193))
        hashes[i] = h
    return hashes


@njit(cache=True, nogil=True)
def _crc32_all(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0xFFFFFFFF)
        for at in range(starts[i], starts[i + 1]):
            h = np.uint32(_CRC32[np.uint8(h) ^ data[at]] ^ (h >> np.uint32(8)))
        hashes[i] = ~h
    return hashes


@njit(cache=True, nogil=True)
def _java_texts(starts, data):  # type: ignore[no-untyped-def]
    """String.hashCode, over UTF-16 units. A character of four bytes in UTF-8 has two of them."""
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        at, end, h = starts[i], starts[i + 1], np.int32(0)
        while at < end:
            first = np.int32(data[at])
            if first < 0x80:
                width, code = 1, first
            elif first < 0xE0:
                width, code = 2, first & 0x1F
            elif first < 0xF0:
                width, code = 3, first & 0x0F
            else:
                width, code = 4, first & 0x07
            for byte in range(at + 1, at + width):
                code = code << 6 | np.int32(data[byte]) & 0x3F
            if width == 4:
                h = np.int32(np.int32(31) * h + (0xD7C0 + (code >> 10)))
                code = 0xDC00 | code & 0x3FF
            h = np.int32(np.int32(31) * h + code)
            at += width
        hashes[i] = np.uint32(h)
    return hashes


@njit(cache=True, nogil=True)
def _java_uuids(starts, data):  # type: ignore[no-untyped-def]
    """UUID.hashCode: the exclusive or of its four words, read from the text."""
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h, digits = np.uint32(0), 0
        for at in range(starts[i], starts[i + 1]):
            if data[at] != 0x2D:
                digit = data[at] - (0x30 if data[at] < 0x61 else 0x57)
                h ^= np.uint32(np.uint32(digit) << np.uint32(28 - digits % 8 * 4))
                digits += 1
        hashes[i] = h
    return hashes


@njit(cache=True, nogil=True)
def _java_numbers(starts, data):  # type: ignore[no-untyped-def]
    """The hashCode of Integer, Long and Double: the exclusive or of the words."""
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0)
        for at in range(starts[i], starts[i + 1]):
            h ^= np.uint32(np.uint32(data[at]) << np.uint32(24 - (at - starts[i]) % 4 * 8))
        hashes[i] = h
    return hashes


_OF_BYTES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    MURMUR2: _murmur2_all,
    MURMUR2_UNSIGNED: _murmur2_all,
    MURMUR2_KAFKAJS1: _murmur2_in_floats_all,
    CRC32: _crc32_all,
    CRC32_CONSISTENT: _crc32_all,
    FNV1A: _fnv1a_all,
    FNV1A_MASKED: _fnv1a_all,
    MURMUR3: _murmur3_all,
    ICEBERG: _murmur3_all,
}
# Java's hashCode, by key format; of all others that of numbers.
_OF_JAVA = {"string": _java_texts, "uuid": _java_uuids}
# What a producer makes of the sign of a hash before it takes `mod partitions`.
_SIGNED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    MURMUR2: _masked,
    MURMUR2_UNSIGNED: _as_it_is,
    MURMUR2_KAFKAJS1: _masked,
    CRC32: _as_it_is,
    CRC32_CONSISTENT: _as_it_is,
    FNV1A: _absolute,
    FNV1A_MASKED: _masked,
    MURMUR3: _masked,
    ICEBERG: _masked,
    JAVA: _absolute_in_java,
    JAVA_MASKED: _masked,
}
