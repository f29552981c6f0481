"""The hashes of serialised keys, compiled: key i is `data[starts[i]:starts[i + 1]]`.

The scalar twins and their sources are in `partitioning/hashes.py`. Tests compare both.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np
from numba import njit

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
)

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
# What eight steps of CRC32 make of each byte, which all of its implementations keep.
_CRC32 = np.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], np.uint32)


@njit(cache=True, nogil=True)
def murmur2(starts, data):  # type: ignore[no-untyped-def]
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
def murmur2_in_floats(starts, data):  # type: ignore[no-untyped-def]
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
def murmur3(starts, data):  # type: ignore[no-untyped-def]
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
def fnv1a(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0x811C9DC5)
        for at in range(starts[i], starts[i + 1]):
            h = np.uint32((h ^ np.uint32(data[at])) * np.uint32(0x01000193))
        hashes[i] = h
    return hashes


@njit(cache=True, nogil=True)
def crc32(starts, data):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0xFFFFFFFF)
        for at in range(starts[i], starts[i + 1]):
            h = np.uint32(_CRC32[np.uint8(h) ^ data[at]] ^ (h >> np.uint32(8)))
        hashes[i] = ~h
    return hashes


@njit(cache=True, nogil=True)
def java_texts(starts, data):  # type: ignore[no-untyped-def]
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
def java_uuids(starts, data):  # type: ignore[no-untyped-def]
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
def java_numbers(starts, data):  # type: ignore[no-untyped-def]
    """The hashCode of Integer, Long and Double: the exclusive or of the words."""
    hashes = np.empty(len(starts) - 1, np.uint32)
    for i in range(len(hashes)):
        h = np.uint32(0)
        for at in range(starts[i], starts[i + 1]):
            h ^= np.uint32(np.uint32(data[at]) << np.uint32(24 - (at - starts[i]) % 4 * 8))
        hashes[i] = h
    return hashes


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


OF_BYTES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    MURMUR2: murmur2,
    MURMUR2_UNSIGNED: murmur2,
    MURMUR2_KAFKAJS1: murmur2_in_floats,
    CRC32: crc32,
    CRC32_CONSISTENT: crc32,
    FNV1A: fnv1a,
    FNV1A_MASKED: fnv1a,
    MURMUR3: murmur3,
    ICEBERG: murmur3,
}
# Java's hashCode, by key format; of all others that of numbers.
OF_JAVA = {"string": java_texts, "uuid": java_uuids}
# What a producer makes of the sign of a hash before it takes `mod partitions`.
SIGNED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
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
