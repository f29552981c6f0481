"""Placement: where a producer puts a key. Kafka's murmur2 on the serialised key, made positive, mod count.

Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` of kafka-clients 4.3.1. The vectorised
twin in `spark_jobs/hashing.py` is held against this one in tests.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from partitioning.errors import Finding, Refused

MURMUR2 = "murmur2"
OPAQUE = "opaque"
PLACEMENTS = (MURMUR2, OPAQUE)


@dataclass(frozen=True, order=True, slots=True)
class Placement:
    """Where records lie: in partition `hash(key) mod partitions` of `partitions`, the key column serialised as
    `key_format`. Without a key they were gathered into one partition.

    >>> print(Placement("tailnum", "string", "murmur2", 12))
    murmur2(tailnum) mod 12
    """

    key: str
    key_format: str
    hash: str
    partitions: int

    def __str__(self) -> str:
        return f"{self.hash}({self.key}) mod {self.partitions}" if self.key else "gathered into one"


_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, made positive as Kafka does (`& 0x7fffffff`).

    >>> murmur2(b"foobar"), murmur2(b"")
    (1357151166, 275646681)
    """
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return (h ^ h >> 15) & 0x7FFFFFFF


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
KEY_FORMATS: Mapping[str, Callable[..., bytes]] = {
    "string": _string,
    "long": struct.Struct(">q").pack,
    "int": struct.Struct(">i").pack,
    "double": _double,
    "uuid": _uuid,
    "bytes": _bytes,
}


def key_bytes(key: object, key_format: str) -> bytes:
    """The bytes that Kafka's serialiser for `key_format` makes of `key`.

    >>> key_bytes(1, "long").hex()
    '0000000000000001'

    Raises Refused for an unknown format or a key that the format cannot hold.
    """
    if key_format not in KEY_FORMATS:
        raise Refused(
            Finding(f"unknown key format {key_format!r}", "key_format", f"use one of {', '.join(KEY_FORMATS)}")
        )
    try:
        return KEY_FORMATS[key_format](key)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise Refused(
            Finding(f"{key!r} is no {key_format} key: {error}", "key", "correct the key or its format")
        ) from error


def placement_hash(key: object, key_format: str = "string") -> int:
    """h(k): what a producer takes `mod partitions` of.

    >>> placement_hash("N14228") % 12
    8
    """
    return murmur2(key_bytes(key, key_format))


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
