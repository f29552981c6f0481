"""The scalar placement hashes: h(key) of one key at a time.

`murmur2` of the serialised key, without its sign bit, is Kafka's (`Utils.murmur2` and
`BuiltInPartitioner.partitionForKey` of kafka-clients 4.3.1); `murmur2_unsigned` keeps the bit (@platformatic/kafka),
`murmur2_kafkajs1` is computed in floats, as KafkaJS 1.x did. `crc32` is librdkafka's
(`rd_kafka_msg_partitioner_consistent_random`, its default). `fnv1a` is Sarama's default, the absolute value, and
`fnv1a_masked` its reference form, without the sign bit. `java`, the absolute hashCode of the key, is Samza's
(`KafkaUtil.getIntegerPartitionKey`); `java_masked` and `murmur3`, without their sign bit, are Pulsar's JavaStringHash
and Murmur3_32Hash. `iceberg` is murmur3 of numbers and uuids as Iceberg's transform `bucket` has them, and `murmur3`
that of text and bytes. What real producers answered is in `tests/vectors/producers`. An import path names a function of
the user's own (Apex: stream codec). The compiled twin in `spark_jobs/engine/compiled_hashes.py` is held against these
in tests.
"""

from __future__ import annotations

import math
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping

from partitioning.errors import Refused, refuse
from partitioning.framed_keys import utf16, written_key
from partitioning.imports import called, imported, is_import_path
from partitioning.kinds import Kind
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
    OPAQUE,
    KeyFormat,
    Placement,
    each_of,
    hash_findings,
    hash_of_bytes,
    newest_of,
    no_java_hash,
)

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, made positive as Kafka does (`& 0x7fffffff`).

    >>> murmur2(b"foobar"), murmur2(b"")
    (1357151166, 275646681)
    """
    return _murmur2(data) & _POSITIVE


def _murmur2(data: bytes) -> int:
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def _murmur2_in_floats(data: bytes) -> int:
    """KafkaJS 1.x: products are JavaScript's numbers, of 53 bits; a last word that is not whole is taken twice."""

    def signed(value: int) -> int:
        return (value + 2**31 & _MASK) - 2**31

    def times_m(value: int) -> int:
        return int(float(value) * _M)

    h = signed(_SEED ^ len(data))
    for at in range(0, len(data), 4):
        k = times_m(signed(int.from_bytes(data[at : at + 4], "little")))
        k = times_m(signed(k ^ (k & _MASK) >> 24))
        h = signed(times_m(h) ^ k)
    if tail := data[len(data) & ~3 :]:
        h = times_m(signed(h ^ int.from_bytes(tail, "little")))
    h = times_m(signed(h ^ (h & _MASK) >> 13))
    return (h ^ (h & _MASK) >> 15) & _POSITIVE


def _fnv1a(data: bytes) -> int:
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & _MASK
    return h


def _absolute(h: int) -> int:
    """The absolute value of a signed 32-bit number."""
    return min(h, 2**32 - h)


def _murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32, from the seed 0."""

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & _MASK
        return (k << 15 | k >> 17) * 0x1B873593 & _MASK

    h, whole = 0, len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        h ^= mixed(k)
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & _MASK
    h ^= mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _string(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError("it is not text")
    return value.encode("utf-8", errors="replace")


def _double(value: float) -> bytes:
    # Java's doubleToLongBits knows one NaN only.
    return struct.pack(">d", math.nan if math.isnan(value) else value)


def _uuid(value: object) -> bytes:
    return str(value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))).encode()


def _bytes(value: object) -> bytes:
    # bytes(3) would be three zeros.
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("it is not bytes")
    return bytes(value)


# Kafka's serialisers by the name that a stream declares as its key format.
_SERIALISERS: Mapping[str, Callable[..., bytes]] = {
    "string": _string,
    "long": struct.Struct(">q").pack,
    "int": struct.Struct(">i").pack,
    "double": _double,
    "uuid": _uuid,
    "bytes": _bytes,
}


def one_key(key: object, key_format: str) -> object:
    """The one of equal keys that places all of them: SQL treats 0.0 and -0.0 as equal, but their bytes differ.

    >>> one_key(-0.0, "double")
    0.0
    """
    return key + 0.0 if isinstance(key, float) and key_format == KeyFormat.DOUBLE else key


def key_bytes(key: object, key_format: str) -> bytes:
    """The bytes that Kafka's serialiser for `key_format` makes of `key`.

    >>> key_bytes(1, "long").hex()
    '0000000000000001'

    Raises Refused for an unknown format or a key that the format cannot hold.
    """
    if key_format not in _SERIALISERS:
        what = f"unknown key format {key_format!r}"
        raise Refused.of(Kind.KEY, what, "key_format", f"use one of {', '.join(KeyFormat)}", key_format=key_format)
    try:
        return _SERIALISERS[key_format](key)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        what, then = f"{key!r} is no {key_format} key: {error}", "correct the key or its format"
        raise Refused.of(Kind.KEY, what, "key", then, key=key, key_format=key_format) from error


def placement_hash(key: object, key_format: str = "string") -> int:
    """h(k) of the placement `murmur2`: what Kafka's producer takes `mod partitions` of; of equal keys that of one.

    >>> placement_hash("N14228") % 12
    8
    """
    return murmur2(key_bytes(one_key(key, key_format), key_format))


# What producers take `mod partitions` of: a number of the key's bytes.
_OF_BYTES: Mapping[str, Callable[[bytes], int]] = {
    MURMUR2: murmur2,
    MURMUR2_UNSIGNED: _murmur2,
    MURMUR2_KAFKAJS1: _murmur2_in_floats,
    CRC32: zlib.crc32,
    CRC32_CONSISTENT: zlib.crc32,
    FNV1A: lambda data: _absolute(_fnv1a(data)),
    FNV1A_MASKED: lambda data: _fnv1a(data) & _POSITIVE,
    MURMUR3: lambda data: _murmur3(data) & _POSITIVE,
}


def java_hash(key: object, key_format: str = "string") -> int:
    """Java's hashCode of the key object: a signed 32-bit number. A uuid is a java.util.UUID, not its text.

    >>> java_hash("polygenelubricants"), java_hash(2**32, "long"), java_hash(-1, "int")
    (-2147483648, 1, -1)

    Raises Refused for bytes, which Java hashes by identity, and for a key that its format cannot hold.
    """
    data = key_bytes(key, key_format)
    if key_format == "bytes":
        raise Refused(no_java_hash("key"))
    if key_format == "string":
        h = 0
        for unit in utf16(key):
            h = (31 * h + unit) & _MASK
        return h - 2**32 if h >= 2**31 else h
    # Java folds what is wider than an int by exclusive or of its 32-bit words.
    words = uuid.UUID(data.decode()).bytes if key_format == "uuid" else data
    h = 0
    for (word,) in struct.iter_unpack(">i", words):
        h ^= word
    return h


def java_placement(key: object, key_format: str = "string") -> int:
    """h(k) of the placement `java`: the absolute hashCode, and 0 for -2^31, which Java has no absolute of.

    >>> java_placement("polygenelubricants"), java_placement("user-1"), java_placement(-10, "int")
    (0, 836031825, 10)
    """
    h = java_hash(one_key(key, key_format), key_format)
    return 0 if h == -(2**31) else abs(h)


def iceberg_placement(key: object, key_format: str = "long") -> int:
    """h(k) of the placement `iceberg`: murmur3 of the 8 bytes of a number, the last first, or the 16 of a uuid.

    >>> iceberg_placement(34), iceberg_placement("f79c3e09-677c-4bbd-a479-3f349cb785e7", "uuid")
    (2017239379, 1488055340)

    Raises Refused for other keys.
    """
    data = key_bytes(key, key_format)
    refuse(hash_findings(ICEBERG, key_format, "key"))
    return _murmur3(uuid.UUID(data.decode()).bytes if key_format == KeyFormat.UUID else data[::-1]) & _POSITIVE


def hash_of(name: str, where: str) -> Callable[[object, str], int]:
    """h by the name of a placement: a function of a key and its format.

    A user's own function, named by its import path, is given the key as text, int, float or bytes (a uuid as
    text) and must give an int from 0 to 2^63 - 1, always the same for equal keys.

    >>> hash_of("murmur2", "stream 'flights'")("N14228", "string") % 12
    8

    Raises Refused for `opaque` and unknown placements, and if the function cannot be imported. What it gives
    back raises Refused for a key that its format cannot hold and for a wrong answer of the user's function.
    """
    name = newest_of(name)
    if (of_bytes := hash_of_bytes(name)) != name:
        hashed = hash_of(of_bytes, where)
        return lambda key, key_format: hashed(written_key(key, name), KeyFormat.BYTES)
    if number := _OF_BYTES.get(name):
        return lambda key, key_format: number(key_bytes(one_key(key, key_format), key_format))
    if name == JAVA:
        return java_placement
    if name == JAVA_MASKED:
        return lambda key, key_format: java_hash(key, key_format) & _POSITIVE
    if name == ICEBERG:
        return iceberg_placement
    if name == OPAQUE:
        what = f"{OPAQUE} placement has no hash"
        raise Refused.of(Kind.KEYS_DO_NOT_MEET, what, where, "declare how its producers place keys", hash=name)
    if not is_import_path(name):
        raise Refused(*hash_findings(name, "string", where))
    function = imported(name, where)
    return lambda key, key_format: custom_hash(
        function, key_bytes(one_key(key, key_format), key_format), key_format, where
    )


def homes_of(key: object, placement: Placement, where: str) -> list[int]:
    """The partitions in which a key lies, by each hash of its placement, the newest first. Raises Refused as `hash_of`
    and its functions do."""
    found = (hash_of(name, where)(key, placement.key_format) % placement.partitions for name in each_of(placement.hash))
    return list(dict.fromkeys([*found][::-1]))


def custom_hash(function: Callable[..., object], data: bytes, key_format: str, where: str) -> int:
    """The result of a user's own placement function for the key serialised as `data`.

    Raises Refused unless it is an int from 0 to 2^63 - 1.
    """
    key = _PLAIN[key_format](data)
    with called(Kind.FUNCTION, f"the placement function, for the key {key!r},", where, "correct the function"):
        h = function(key)
    if not isinstance(h, int) or isinstance(h, bool) or not 0 <= h < 2**63:
        what = f"the placement function gives {h!r} for the key {key!r}"
        then = "let it give an int from 0 to 2^63 - 1 for every key"
        raise Refused.of(Kind.FUNCTION, what, where, then, h=h, key=key)
    return h


# From Kafka's serialised keys back to plain values, by key format.
_PLAIN: Mapping[str, Callable[[bytes], object]] = {
    "string": bytes.decode,
    "long": lambda data: int.from_bytes(data, signed=True),
    "int": lambda data: int.from_bytes(data, signed=True),
    "double": lambda data: struct.unpack(">d", data)[0],
    "uuid": bytes.decode,
    "bytes": bytes,
}

# How receipts and audit tables write keys as text, by key format.
_READERS: Mapping[str, Callable[[str], object]] = {
    "string": str,
    "long": int,
    "int": int,
    "double": float,
    "uuid": str,
    "bytes": bytes.fromhex,
}


def read_key(text: str, key_format: str) -> object:
    """The key that a receipt or an audit table wrote as `text`; bytes are written in hexadecimal.

    >>> read_key("42", "long"), read_key("00ff", "bytes")
    (42, b'\\x00\\xff')
    """
    return _READERS[key_format](text)
