"""The placement hashes of many keys, for expectations: computed in another way than the kernel's, which they judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from partitioning.errors import Refused
from partitioning.hashes import hash_of, key_bytes, one_key
from partitioning.model.placement import MURMUR2

_SEED, _M, _POSITIVE = np.uint32(0x9747B28C), np.uint32(0x5BD1E995), np.uint32(0x7FFFFFFF)


def hashes_or_why(keys: Sequence[object], key_format: str, hash: str, where: str) -> list[int | str]:
    """h(k) of each key by the name of a placement, or why it has none."""
    hashed = hash_of(hash, where)
    try:
        if hash == MURMUR2:
            return list(murmur2_of([key_bytes(one_key(key, key_format), key_format) for key in keys]).tolist())
        return [hashed(key, key_format) for key in keys]
    except Refused:
        return [_hash_or_why(hashed, key, key_format) for key in keys]


def _hash_or_why(hashed: Callable[[object, str], int], key: object, key_format: str) -> int | str:
    try:
        return hashed(key, key_format)
    except Refused as refused:
        return refused.findings[0].what


def murmur2_of(keys: Sequence[bytes]) -> np.ndarray:
    """Kafka's positive murmur2 of each key, as uint32: keys of one length together, a column for each four bytes.

    >>> murmur2_of([b"foobar", b""]).tolist()
    [1357151166, 275646681]
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    found, order = np.empty(len(keys), np.uint32), np.argsort(lengths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if not len(rows):
            continue
        length = len(keys[rows[0]])
        filled = b"\0" * (-length % 4)
        words = np.frombuffer(b"".join(keys[row] + filled for row in rows), "<u4").reshape(len(rows), -1).T
        h: np.ndarray = np.full(len(rows), length, np.uint32) ^ _SEED
        for word in words[: length // 4]:
            mixed = word * _M
            h = h * _M ^ (mixed ^ mixed >> 24) * _M
        if length % 4:
            h = (h ^ words[-1]) * _M
        h = (h ^ h >> 13) * _M
        found[rows] = (h ^ h >> 15) & _POSITIVE
    return found
