"""Proof: the receipt's figures of one partition in one task, taken from what passes, in one compiled pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np
import pyarrow as pa
from numba import njit

from coset.sources.reader import Batch
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import PlannedPartition
from partitioning.model.receipt import MODULUS, Offender, PartitionReceipt, Violation
from partitioning.model.takes import taken
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.gaps_seen import Gaps
from spark_jobs.engine.hashing import key_texts, one_of_equals
from spark_jobs.engine.heavy_keys import HeavyKeys
from spark_jobs.engine.offset_digests import digest_of
from spark_jobs.engine.residues import among, is_one_of, residues
from spark_jobs.engine.take import DROPPED, OUTSIDE, REFUSED, TAKEN, Taken

OFFENDERS_KEPT = 20
_KEYS_HELD = 1_000_000

# Violations by number, and positions in the array of running counts.
_VIOLATIONS = (Violation.OFFSET, Violation.FOREIGN, Violation.STRAY, Violation.NULL_KEY)
_OFFSET, _FOREIGN, _STRAY, _NULL_KEY = range(4)
_READ, _TAKEN, _DROPPED, _NULLS, _EXPECTED = range(5)

SAMPLED = pa.schema([("key", pa.string()), ("offset", pa.int64())])


@dataclass(frozen=True, slots=True)
class Claims:
    """What an order says of the keys in a partition, and so what a record can break.

    Keys lie by `h mod partitions = partition`, if that is `placed`. Those taken have `h mod cosets` among the
    residues `owned`, if there are any. Of those, one in `sample` is kept, none if it is 0. Offsets follow one another,
    or, if there are `gaps`, rise.
    """

    placed: bool
    partitions: int
    partition: int
    cosets: int
    owned: tuple[int, ...]
    sample: int
    gaps: bool

    @classmethod
    def of(cls, order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> Claims:
        """What `order` says of one partition of an input."""
        placement, task = ordered.placement, order.task
        placed = placement.hash != OPAQUE
        return cls(
            placed,
            placement.partitions,
            planned.partition % placement.partitions,
            order.cosets,
            task.owns if placed and _owns_all(order, ordered, planned.partition) else (),
            order.key_sample if task.owns else 0,
            ordered.sparse or (isinstance(planned, PlannedPartition) and planned.missing > 0),
        )


def _owns_all(order: Order, ordered: Ordered, partition: int) -> bool:
    """Whether the task owns all keys that it takes of a partition; if not, keys need not meet."""
    step = gcd(ordered.placement.partitions, order.cosets)
    residues = taken(order.task, ordered.name, order.cosets, step)
    return set(residues.get(partition % step, ())) <= set(order.task.owns)


@dataclass(slots=True)
class Proof:
    """The running figures of one partition of an input in one task.

    `note` is given its batches in order; `receipt` then says what was seen, `keys` which keys were sampled.
    """

    ordered: Ordered
    planned: PlannedPartition | LeftPartition
    claims: Claims
    _counts: np.ndarray = field(init=False)
    _broken: np.ndarray = field(init=False)
    _owned: np.ndarray = field(init=False)
    _digest: int = 0
    _held_digest: int = 0
    _offenders: dict[Violation, list[Offender]] = field(default_factory=lambda: {kind: [] for kind in _VIOLATIONS})
    _sampled: list[pa.Table] = field(default_factory=list)
    _held: int = 0
    _reached: int | None = None
    _heavy: HeavyKeys = field(init=False)
    _gaps: Gaps = field(init=False)

    def __post_init__(self) -> None:
        self._heavy = HeavyKeys(self.ordered.placement.key_format)
        self._gaps = Gaps(self.planned.start)
        self._broken = np.zeros(len(_VIOLATIONS), np.int64)
        self._owned = np.array(self.claims.owned, np.uint64)
        self._counts = np.zeros(5, np.int64)
        self._counts[_EXPECTED] = self.planned.start

    def note(self, batch: Batch, seen: Taken) -> None:
        """Take the figures of a batch of which it was seen what becomes of each record."""
        claims, kind = self.claims, seen.hashes.dtype
        self._reached = batch.reached
        sampled = np.empty(len(seen.fates) if claims.sample else 0, np.bool_)
        firsts = np.empty((len(_VIOLATIONS), OFFENDERS_KEPT), np.int64)
        filled = np.zeros(len(_VIOLATIONS), np.int64)
        _count_all(
            seen.hashes,
            seen.has_key,
            seen.offsets,
            seen.fates,
            (batch.first, batch.end),
            (claims.placed, claims.gaps),
            (
                residues(claims.partitions, claims.partition, 1, kind),
                residues(claims.cosets, min(claims.owned, default=0), 1, kind),
                residues(claims.cosets * max(claims.sample, 1), 0, claims.cosets, kind),
            ),
            (np.uint64(claims.cosets), self._owned),
            self._counts,
            self._broken,
            sampled,
            firsts,
            filled,
        )
        accounted = (seen.fates == TAKEN) | (seen.fates == DROPPED)
        self._digest = (self._digest + int(digest_of(seen.offsets, accounted))) % MODULUS
        if self.ordered.sparse:
            read = seen.fates != OUTSIDE
            self._held_digest = (self._held_digest + int(digest_of(seen.offsets, read))) % MODULUS
            if batch.reached is not None:
                self._gaps.note(seen.offsets[read])
        self._note_offenders(seen, firsts, filled)
        self._heavy.note(seen.keys, seen.hashes, _keyed(seen))
        if claims.sample:
            self._note_keys(seen, sampled)

    def receipt(self) -> PartitionReceipt:
        """What was seen up to now."""
        counts, broken = [int(count) for count in self._counts], [int(count) for count in self._broken]
        return PartitionReceipt(
            input=self.ordered.name,
            partition=self.planned.partition,
            start=self.planned.start,
            end=self.planned.end,
            read=counts[_READ],
            taken=counts[_TAKEN],
            dropped=counts[_DROPPED],
            nulls=counts[_NULLS] + broken[_NULL_KEY],
            digest=f"{self._digest:016x}",
            disorder=broken[_OFFSET],
            foreign=broken[_FOREIGN],
            stray=broken[_STRAY],
            keys=len(self.keys()),
            offenders=tuple(offender for kind in _VIOLATIONS for offender in self._offenders[kind]),
            heavy=self._heavy.found(),
            held=f"{self._held_digest:016x}" if self.ordered.sparse else "",
            reached=self._reached,
            gaps=None if self._reached is None else self._gaps.seen(self._reached),
        )

    def keys(self) -> pa.Table:
        """The sampled keys, each once: columns `key` (text) and `offset` (of its first record)."""
        self._compact()
        return self._sampled[0] if self._sampled else SAMPLED.empty_table()

    def _note_offenders(self, seen: Taken, firsts: np.ndarray, filled: np.ndarray) -> None:
        for number, violation in enumerate(_VIOLATIONS):
            kept = self._offenders[violation]
            for row in firsts[number, : min(filled[number], OFFENDERS_KEPT - len(kept))].tolist():
                (key,) = key_texts(seen.keys.slice(row, 1), self.ordered.placement.key_format).to_pylist()
                kept.append(Offender(violation, self.planned.partition, int(seen.offsets[row]), key))

    def _note_keys(self, seen: Taken, sampled: np.ndarray) -> None:
        rows = np.flatnonzero(sampled)
        if not len(rows):
            return
        texts = key_texts(one_of_equals(seen.keys.take(numbers(rows))), self.ordered.placement.key_format)
        self._sampled.append(pa.Table.from_arrays([texts, numbers(seen.offsets[rows])], schema=SAMPLED))
        self._held += len(rows)
        if self._held > _KEYS_HELD:
            self._compact()

    def _compact(self) -> None:
        if len(self._sampled) > 1 or self._held:
            table = pa.concat_tables(self._sampled).group_by("key", use_threads=False).aggregate([("offset", "min")])
            self._sampled, self._held = [table.rename_columns(["key", "offset"])], 0


def _keyed(seen: Taken) -> np.ndarray:
    """A flag for each record that is taken and has a key."""
    taken_ones: np.ndarray = seen.fates == TAKEN
    return taken_ones & seen.has_key if len(seen.has_key) else taken_ones


@njit(cache=True, nogil=True)
def _count_all(  # type: ignore[no-untyped-def]  # noqa: C901
    hashes, has_key, offsets, fates, span, claimed, among_these, all_owned, counts, broken, sampled, firsts, filled
):
    """Add up the figures of a batch.

    hashes: uint32 or uint64 each; has_key: bool each, or empty; offsets: int64 each; fates: uint8 each; span: the
    offsets (first, end) that may be there; claimed: whether keys are placed, and whether there are gaps; among_these:
    the residues of keys that lie in the partition, of the first that the task owns, and of those that are sampled;
    all_owned: the modulus and all residues that it owns, ascending. Changed are counts, broken (how many of each
    violation), sampled (a flag each, or empty), and firsts, the rows of the first `filled` of each violation.
    """
    home, own, sample = among_these
    cosets, owned = all_owned
    first, end = span
    placed, gaps = claimed
    expected = counts[_EXPECTED]
    read = taken = dropped = 0
    for i in range(len(hashes)):
        if len(sampled):
            sampled[i] = False
        offset, fate = offsets[i], fates[i]
        if offset < first or offset >= end:
            _break(_OFFSET, i, broken, firsts, filled)
            continue
        if fate == OUTSIDE:
            continue
        read += 1
        if offset < expected or (offset > expected and not gaps):
            _break(_OFFSET, i, broken, firsts, filled)
        expected = offset + 1
        if fate == TAKEN:
            taken += 1
        elif fate == DROPPED:
            dropped += 1
        elif fate == REFUSED:
            _break(_NULL_KEY, i, broken, firsts, filled)
        if len(has_key) and not has_key[i]:
            counts[_NULLS] += fate == TAKEN
            continue
        h = np.uint64(hashes[i])
        if placed and not among(h, home):
            _break(_FOREIGN, i, broken, firsts, filled)
        if fate != TAKEN:
            continue
        if len(owned) and not (among(h, own) or is_one_of(h % cosets, owned)):
            _break(_STRAY, i, broken, firsts, filled)
        if len(sampled):
            sampled[i] = among(h, sample)
    counts[_EXPECTED] = expected
    counts[_READ] += read
    counts[_TAKEN] += taken
    counts[_DROPPED] += dropped


@njit(cache=True, nogil=True, inline="always")
def _break(violation, row, broken, firsts, filled):  # type: ignore[no-untyped-def]
    broken[violation] += 1
    if filled[violation] < firsts.shape[1]:
        firsts[violation, filled[violation]] = row
        filled[violation] += 1
