"""The placement hash of whole Arrow arrays, over Arrow's buffers, and the keys as producers serialise them."""

from __future__ import annotations

import math
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partitioning.errors import Refused, refuse
from partitioning.framed_keys import written_key
from partitioning.hashes import custom_hash
from partitioning.imports import imported
from partitioning.kinds import Kind
from partitioning.model.key_schemas import Framing
from partitioning.model.placement import (
    ICEBERG,
    MURMUR2,
    HashName,
    hash_findings,
    hash_of_bytes,
    hash_schema,
    json_fields,
    keeps_empty,
    newest_of,
)
from spark_jobs.engine.avro_keys import avro_records
from spark_jobs.engine.compiled_hashes import OF_BYTES, OF_JAVA, SIGNED, java_numbers
from spark_jobs.engine.json_keys import json_objects

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
    if placement not in SIGNED:
        return _custom(keys, starts, data, key_format, placement)
    refuse(hash_findings(placement, key_format, "key"))
    if placement == ICEBERG:
        starts, data = _read_only(*_in_iceberg(starts, data, key_format))
    hashed = OF_BYTES.get(placement) or OF_JAVA.get(key_format, java_numbers)
    return SIGNED[placement](np.asarray(hashed(starts, data)))


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
