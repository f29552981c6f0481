"""Proof: counts and checks the records of one partition in one task, for the receipt.

An unbroken batch that keeps all claims is proved as a whole. Any other goes through one compiled pass, which finds the
records that break a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numba import njit

from coset.sources.reader import Batch
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Ordered
from partitioning.model.placement import each_of
from partitioning.model.private import MASK
from partitioning.model.receipt import MODULUS, HeavyKey, Offender, PartitionReceipt, Violation, range_digest
from partitioning.model.stage_inputs import PlannedPartition
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import key_texts, one_of_equals, placement_hashes
from spark_jobs.engine.heavy_keys import HeavyKeys
from spark_jobs.engine.offset_digests import Gaps, digest_of
from spark_jobs.engine.partition_claims import Claims
from spark_jobs.engine.residues import all_among, among, is_one_of, residues, rows_among
from spark_jobs.engine.take import DROPPED, OUTSIDE, REFUSED, SET_ASIDE, TAKEN, Taken, Unbroken

OFFENDERS_KEPT = 20
_KEYS_HELD = 1_000_000

# Violations by number, and positions in the array of running counts.
_VIOLATIONS = (Violation.OFFSET, Violation.FOREIGN, Violation.STRAY, Violation.NULL_KEY, Violation.SET_ASIDE)
_OFFSET, _FOREIGN, _STRAY, _NULL_KEY, _SET_ASIDE = range(5)
_READ, _TAKEN, _DROPPED, _NULLS, _EXPECTED = range(5)

SAMPLED = pa.schema([("key", pa.string()), ("offset", pa.int64())])


@dataclass(slots=True)
class Proof:
    """The running figures of one partition of an input in one task.

    `note_unbroken` and `note` take its batches in order. `receipt` has the figures, `keys` the sampled keys.
    """

    ordered: Ordered
    planned: PlannedPartition | LeftPartition
    claims: Claims
    _counts: np.ndarray = field(init=False)
    _broken: np.ndarray = field(init=False)
    _owned: np.ndarray = field(init=False)
    _digest: int = 0
    _digest_aside: int = 0
    _held_digest: int = 0
    _offenders: dict[Violation, list[Offender]] = field(default_factory=lambda: {kind: [] for kind in _VIOLATIONS})
    _sampled: list[pa.RecordBatch] = field(default_factory=list)
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

    def note_unbroken(self, batch: Batch, seen: Unbroken) -> bool:
        """Add the figures of an unbroken batch, if it keeps all claims. If not, nothing is added, and this is False."""
        claims, kind = self.claims, seen.hashes.dtype
        first, end = int(seen.offsets[0]), int(seen.offsets[-1]) + 1
        expected = self._counts[_EXPECTED]
        if first < expected or (first > expected and not claims.gaps):
            return False
        home = residues(claims.partitions, claims.partition, 1, kind)
        # Tasks that read together share it.
        place = self.ordered.hash, claims.partitions, claims.partition
        if claims.placed and not batch.once(place, lambda: all_among(self._lying(seen), home)):
            return False
        taken = seen.hashes if seen.rows is None else seen.hashes.take(seen.rows)
        if claims.owned and not claims.owned_where_placed:
            own = residues(claims.cosets, claims.owned[0], 1, kind)
            if not _all_owned(taken, own, np.uint64(claims.cosets), self._owned):
                return False
        self._reached = batch.reached
        self._counts[_READ] += len(seen.hashes)
        self._counts[_TAKEN] += len(taken)
        self._counts[_EXPECTED] = end
        every = range_digest(first, end) if seen.rows is None or self.ordered.sparse else 0
        # The offsets follow each other.
        self._digest += every if seen.rows is None else int(digest_of(first + seen.rows))
        self._note_held(batch, seen.offsets, every)
        self._heavy.note(seen.keys, taken, seen.rows)
        if claims.sample:
            # Tasks that read together share the sample, and each keeps its own keys of it.
            among_these = residues(claims.cosets * claims.sample, 0, claims.cosets, kind)
            which = "sample", claims.cosets, claims.sample
            rows, sample = batch.once(which, lambda: self._sample(seen, rows_among(seen.hashes, among_these)))
            self._note_keys(sample if seen.rows is None else sample.take(numbers(_places(rows, seen.rows))))
        return True

    def note(self, batch: Batch, seen: Taken) -> None:
        """Add the figures of a batch and the dispositions of its records."""
        claims, kind = self.claims, seen.hashes.dtype
        self._reached = batch.reached
        sampled = np.empty(len(seen.dispositions) if claims.sample else 0, np.bool_)
        firsts = np.empty((len(_VIOLATIONS), OFFENDERS_KEPT), np.int64)
        filled = np.zeros(len(_VIOLATIONS), np.int64)
        _count_all(
            seen.hashes,
            self._lying(seen),
            seen.has_key,
            seen.offsets,
            seen.dispositions,
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
        is_taken = seen.dispositions == TAKEN
        accounted = is_taken | (seen.dispositions == DROPPED)
        if seen.unusable:
            aside = seen.dispositions == SET_ASIDE
            accounted |= aside
            self._digest_aside += int(digest_of(seen.offsets[aside]))
        self._digest += int(digest_of(seen.offsets[accounted]))
        if self.ordered.sparse:
            read = seen.offsets[seen.dispositions != OUTSIDE]
            self._note_held(batch, read, int(digest_of(read)))
        self._note_offenders(seen, firsts, filled)
        keyed = np.flatnonzero(is_taken & seen.has_key if len(seen.has_key) else is_taken)
        self._heavy.note(seen.keys, seen.hashes[keyed], keyed)
        if claims.sample:
            self._note_keys(self._sample(seen, np.flatnonzero(sampled))[1])

    def receipt(self) -> PartitionReceipt:
        """The figures so far."""
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
            digest=_text(self._digest),
            disorder=broken[_OFFSET],
            foreign=broken[_FOREIGN],
            stray=broken[_STRAY],
            keys=len(self.keys()),
            offenders=tuple(offender for kind in _VIOLATIONS for offender in self._offenders[kind]),
            heavy=self._heavy_keys(),
            held=_text(self._held_digest) if self.ordered.sparse else "",
            reached=self._reached,
            gaps=None if self._reached is None else self._gaps.seen(self._reached),
            set_aside=broken[_SET_ASIDE],
            digest_aside=_text(self._digest_aside) if broken[_SET_ASIDE] else "",
        )

    def _heavy_keys(self) -> tuple[HeavyKey, ...]:
        found = self._heavy.found()
        return tuple(HeavyKey(MASK, key.records) for key in found) if self.claims.private else found

    def keys(self) -> pa.Table:
        """The sampled keys, each once, in columns `key` (text) and `offset` (of its first record)."""
        self._compact()
        return pa.Table.from_batches(self._sampled, SAMPLED)

    def _lying(self, seen: Taken | Unbroken) -> np.ndarray:
        """The hash of each key; of one that lies by an earlier hash of its placement, that one."""
        placement, claims = self.ordered.placement, self.claims
        *earlier, _ = each_of(self.ordered.hash)
        if not earlier:
            return seen.hashes
        lying: np.ndarray = seen.hashes.copy()
        for name in earlier:
            elsewhere = np.flatnonzero(lying % claims.partitions != claims.partition)
            hashes = placement_hashes(seen.keys.take(numbers(elsewhere)), placement.key_format, name)
            here = hashes % claims.partitions == claims.partition
            lying[elsewhere[here]] = hashes[here]
        return lying

    def _note_offenders(self, seen: Taken, firsts: np.ndarray, filled: np.ndarray) -> None:
        for number, violation in enumerate(_VIOLATIONS):
            kept = self._offenders[violation]
            for row in firsts[number, : min(filled[number], OFFENDERS_KEPT - len(kept))].tolist():
                (key,) = key_texts(seen.keys.slice(row, 1), self.ordered.placement.key_format).to_pylist()
                shown = MASK if self.claims.private and key is not None else key
                unusable = seen.unusable.get(row) if violation is Violation.SET_ASIDE else None
                why = unusable.shown(private=self.claims.hides) if unusable else ""
                kept.append(Offender(violation, self.planned.partition, int(seen.offsets[row]), shown, why))

    def _note_held(self, batch: Batch, offsets: np.ndarray, digest: int) -> None:
        """Note the offsets read of a sparse stream, and their digest."""
        if self.ordered.sparse:
            self._held_digest += digest
            if batch.reached is not None:
                self._gaps.note(offsets)

    def _sample(self, seen: Taken | Unbroken, rows: np.ndarray) -> tuple[np.ndarray, pa.RecordBatch]:
        """The rows of sampled keys, and these keys as columns."""
        texts = key_texts(one_of_equals(seen.keys.take(numbers(rows))), self.ordered.placement.key_format)
        return rows, pa.RecordBatch.from_arrays([texts, numbers(seen.offsets[rows])], schema=SAMPLED)

    def _note_keys(self, sample: pa.RecordBatch) -> None:
        if not len(sample):
            return
        self._sampled.append(sample)
        self._held += len(sample)
        if self._held > _KEYS_HELD:
            self._compact()

    def _compact(self) -> None:
        """Keep each key once. Arrow's aggregation has a cost of its own, and tasks have many partitions."""
        if self._held:
            held = pa.Table.from_batches(self._sampled)
            coded = held["key"].combine_chunks().dictionary_encode()
            first = np.full(len(coded.dictionary), np.iinfo(np.int64).max)
            np.minimum.at(first, coded.indices.to_numpy(), held["offset"].to_numpy())
            self._sampled = [pa.RecordBatch.from_arrays([coded.dictionary, numbers(first)], schema=SAMPLED)]
            self._held = 0


def _text(digest: int) -> str:
    return f"{digest % MODULUS:016x}"


@njit(cache=True, nogil=True)
def _places(some, rows):  # type: ignore[no-untyped-def]
    """Where those of some rows that are among `rows` are in `some`; both ascend."""
    places, many, at = np.empty(len(some), np.int64), 0, 0
    for place in range(len(some)):
        while at < len(rows) and rows[at] < some[place]:
            at += 1
        if at < len(rows) and rows[at] == some[place]:
            places[many] = place
            many += 1
    return places[:many].copy()


@njit(cache=True, nogil=True)
def _all_owned(hashes, own, cosets, owned):  # type: ignore[no-untyped-def]
    strays = 0
    for h in hashes:
        strays += not (among(h, own) or is_one_of(np.uint64(h) % cosets, owned))
    return strays == 0


@njit(cache=True, nogil=True)
def _count_all(  # type: ignore[no-untyped-def]  # noqa: C901
    hashes,
    lying,
    has_key,
    offsets,
    dispositions,
    span,
    claimed,
    among_these,
    all_owned,
    counts,
    broken,
    sampled,
    firsts,
    filled,
):
    """Add up the figures of a batch.

    hashes: uint32 or uint64; lying: those by which keys lie in the partition, if any do; has_key: bool, or empty if all
    have keys; offsets: int64; dispositions: uint8; span: the offsets [first, end) that the batch may have; claimed:
    whether keys are placed, and whether there are gaps;
    among_these: the residues of keys in the partition, the first residue that the task owns, those of sampled keys;
    all_owned: the modulus and all owned residues, ascending.

    This changes counts, broken (the number of each violation), sampled (flags, or empty), and firsts, which gets the
    rows of the first violations of each kind; filled has their number.
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
        offset, disposition = offsets[i], dispositions[i]
        if offset < first or offset >= end:
            _break(_OFFSET, i, broken, firsts, filled)
            continue
        if disposition == OUTSIDE:
            continue
        read += 1
        if offset < expected or (offset > expected and not gaps):
            _break(_OFFSET, i, broken, firsts, filled)
        expected = offset + 1
        if disposition == TAKEN:
            taken += 1
        elif disposition == DROPPED:
            dropped += 1
        elif disposition == REFUSED:
            _break(_NULL_KEY, i, broken, firsts, filled)
        elif disposition == SET_ASIDE:
            _break(_SET_ASIDE, i, broken, firsts, filled)
        if len(has_key) and not has_key[i]:
            counts[_NULLS] += disposition == TAKEN
            continue
        if placed and not among(np.uint64(lying[i]), home):
            _break(_FOREIGN, i, broken, firsts, filled)
        if disposition != TAKEN:
            continue
        h = np.uint64(hashes[i])
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
