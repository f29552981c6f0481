"""Heavy keys: finds the keys with many of the records that a task takes, in one pass and little memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from partitioning.model.receipt import HeavyKey
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import key_texts, one_of_equals

# A heavy key has at least one in PART of the records, and at least RECORDS.
PART = 20
RECORDS = 100
_SEATS = 64
# Hashes fall into buckets. A pass votes only in buckets with one in 2 * PART of its records, or with a seated key: most
# passes have none. All seats serve the same number of buckets.
_BUCKETS = 4096

# Columns of the seats.
_HASH, _BALANCE, _HITS, _ROW = range(4)


class HeavyKeys:
    """A majority vote among the keys that share a seat by their hash. A heavy key outlasts the others.

    A key's hits count from when it took the seat, so they are never too many. Keys with equal hashes count as one; they
    are always in one task. Keys that are rare in a batch of records do not vote unless they have a seat. Source: Boyer
    and Moore, "MJRTY" (1981).
    """

    def __init__(self, key_format: str) -> None:
        self._format = key_format
        self._seats = np.zeros((_SEATS, 4), np.int64)
        self._seats[:, (_HASH, _ROW)] = -1
        self._texts: dict[int, str] = {}
        self._records = 0

    def note(self, keys: pa.Array, hashes: np.ndarray, rows: np.ndarray | None) -> None:
        """Count records: `rows` of those that have these keys, or all if it is None, and the hashes of their keys."""
        self._records += len(hashes)
        if not _vote(hashes, self._seats):
            return
        new = np.flatnonzero(self._seats[:, _ROW] >= 0)
        places = self._seats[new, _ROW]
        seated = keys.take(numbers(places if rows is None else rows[places]))
        texts = key_texts(one_of_equals(seated), self._format)
        self._texts.update(zip(new.tolist(), texts.to_pylist(), strict=True))
        self._seats[:, _ROW] = -1

    def found(self) -> tuple[HeavyKey, ...]:
        """The heavy keys so far, heaviest first."""
        least = max(RECORDS, -(-self._records // PART))
        seated = (HeavyKey(text, int(self._seats[seat, _HITS])) for seat, text in self._texts.items())
        heavy = (seat for seat in seated if seat.records >= least)
        return tuple(sorted(heavy, key=lambda seat: (-seat.records, seat.key)))


@njit(cache=True, nogil=True)
def _vote(hashes, seats):  # type: ignore[no-untyped-def]
    """Whether a key took a seat, whose row is then beside it."""
    counts, most, new = np.zeros(_BUCKETS, np.int64), 0, False
    for h in hashes:
        bucket = _bucket(h)
        counts[bucket] += 1
        most = max(most, counts[bucket])
    least = max(1, len(hashes) // (2 * PART))
    if most < least and not seats[:, _HITS].any():
        return False
    heavy = counts >= least
    for seat in range(_SEATS):
        if seats[seat, _HITS]:
            heavy[_bucket(seats[seat, _HASH])] = True
    for row in range(len(hashes)):
        bucket = _bucket(hashes[row])
        if not heavy[bucket]:
            continue
        seat, key = bucket // (_BUCKETS // _SEATS), np.int64(hashes[row])
        if seats[seat, _HASH] == key:
            seats[seat, _BALANCE] += 1
            seats[seat, _HITS] += 1
        elif seats[seat, _BALANCE]:
            seats[seat, _BALANCE] -= 1
        else:
            seats[seat, _HASH] = key
            seats[seat, _BALANCE] = 1
            seats[seat, _HITS] = 1
            seats[seat, _ROW] = row
            new = True
    return new


@njit(cache=True, nogil=True, inline="always")
def _bucket(h):  # type: ignore[no-untyped-def]
    """The high bits of a product. The low bits may be the same for all keys of a stream partition."""
    return (np.uint64(h) * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)) >> np.uint64(20)
