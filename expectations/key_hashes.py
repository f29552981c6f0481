"""The placement hashes of many keys, for expectations: computed in another way than the kernel's, which they judge.

Under which id of a registry keys lie where they do is found by trying those that registries give first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from partitioning.errors import Refused
from partitioning.framed_keys import written_key
from partitioning.hashes import hash_of, key_bytes, one_key
from partitioning.model.placement import CRC32, MURMUR2, HashName, KeyFormat, hash_of_bytes, hash_schema, newest_of

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


def places_of_rows(rows: np.ndarray, hash: str, count: int) -> np.ndarray:
    """In which of `count` partitions each key lies: rows of bytes, all keys as long. -1 of one that has no hash.

    >>> places_of_rows(np.frombuffer(b"foobar", np.uint8).reshape(1, -1), "murmur2", 12).tolist()
    [6]
    """
    if hash == MURMUR2:
        return _murmur2_of(rows) % np.uint32(count)
    written, length = rows.tobytes(), rows.shape[1]
    keys = [written[at : at + length] for at in range(0, len(written), length)]
    hashes = map(zlib.crc32, keys) if hash == CRC32 else hashes_or_why(keys, KeyFormat.BYTES, hash, "keys")
    return np.array([h % count if isinstance(h, int) else -1 for h in hashes])


def murmur2_of(keys: Sequence[bytes]) -> np.ndarray:
    """Kafka's positive murmur2 of each key, as uint32: keys of one length together.

    >>> murmur2_of([b"foobar", b""]).tolist()
    [1357151166, 275646681]
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    found, order = np.empty(len(keys), np.uint32), np.argsort(lengths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(rows):
            joined = np.frombuffer(b"".join(keys[row] for row in rows), np.uint8)
            found[rows] = _murmur2_of(joined.reshape(len(rows), len(keys[rows[0]])))
    return found


def _murmur2_of(rows: np.ndarray) -> np.ndarray:
    """That of rows of bytes, a column for each four."""
    length = rows.shape[1]
    filled: np.ndarray = np.zeros((len(rows), length + -length % 4), np.uint8)
    filled[:, :length] = rows
    words = filled.view("<u4").T
    h: np.ndarray = np.full(len(rows), length, np.uint32) ^ _SEED
    for word in words[: length // 4]:
        mixed = word * _M
        h = h * _M ^ (mixed ^ mixed >> 24) * _M
    if length % 4:
        h = (h ^ words[-1]) * _M
    h = (h ^ h >> 13) * _M
    h = (h ^ h >> 15) & _POSITIVE
    return h


# Registries count from 1.
_TRIED = range(1, 100_001)
# So many times less likely than not is it that an id fits by chance.
_SURELY = 1000


def schema_id_of(keys: Sequence[object], places: Sequence[int], count: int, name: HashName) -> int | None:
    """The one id under which all of these keys lie in these of `count` partitions, if their schema is otherwise the one
    that the hash of this name is of. None if none or several do, or keys are too few to tell.

    >>> name, later = (HashName(f"murmur2 of avro {id}(long)") for id in (7, 1234))
    >>> from partitioning.hashes import hash_of
    >>> keys = list(range(20))
    >>> schema_id_of(keys, [hash_of(later, "here")(key, "long") % 12 for key in keys], 12, name)
    1234
    """
    if hash_schema(name) is None or count ** len(keys) < len(_TRIED) * _SURELY:
        return None
    ids: np.ndarray = np.array(_TRIED, ">u4")
    for key, place in zip(keys, places, strict=True):
        if not len(ids):
            return None
        try:
            written = written_key(key, newest_of(name))
        except Refused:
            return None
        # A key differs from that under another id in these four bytes.
        under = np.tile(np.frombuffer(written, np.uint8), (len(ids), 1))
        under[:, 1:5] = ids.view(np.uint8).reshape(-1, 4)
        ids = ids[places_of_rows(under, hash_of_bytes(name), count) == place]
    return int(ids[0]) if len(ids) == 1 else None
