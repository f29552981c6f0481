"""Take: decides which records of a partition a task takes. The compiled twin of `disposition` in `model/takes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from coset.sources.reader import WHY, Batch
from partitioning.commands import Replan
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.takes import Disposition, disposition
from spark_jobs.engine.hashing import keyed, placement_hashes
from spark_jobs.engine.residues import is_one_of, rows_by_residue, rows_of

# Dispositions as numbers. OUTSIDE is a record beyond the planned range, or beyond that which its file or topic claims.
OUTSIDE, LEFT, TAKEN, DROPPED, REFUSED, SET_ASIDE = range(6)
_NUMBERS = {
    Disposition.LEFT: LEFT,
    Disposition.TAKEN: TAKEN,
    Disposition.DROPPED: DROPPED,
    Disposition.REFUSED: REFUSED,
    Disposition.SET_ASIDE: SET_ASIDE,
}


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a record cannot be used, and the step that failed on it; none if it could not be read."""

    why: str
    step: str = ""

    def told(self, *, private: bool) -> str:
        """Why, without what may quote a value of private columns."""
        return "it cannot be used as declared" if private else self.why

    def shown(self, *, private: bool) -> str:
        """Why, and at which step."""
        return f"step {self.step!r}: {self.told(private=private)}" if self.step else self.told(private=private)


@dataclass(frozen=True, slots=True)
class Taken:
    """The disposition, the offset, the key and its hash of each record of a batch.

    `has_key` is empty if all records have keys. The hash of a record without one has no meaning. By some hashes an
    empty key is none. `unusable` has the rows of records that cannot be used.
    """

    keys: pa.Array
    hashes: np.ndarray
    has_key: np.ndarray
    offsets: np.ndarray
    dispositions: np.ndarray
    unusable: Mapping[int, Unusable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A batch of records that all have keys and can be used, at consecutive offsets that may be read.

    `rows` are those that the task takes, ascending; None if it takes all. It leaves the others.
    """

    keys: pa.Array
    hashes: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray | None


class Take:
    """Decides which records of one partition a task takes, by its order. Each key is hashed once.

    A record at an offset of `failed` cannot be used: a step failed on it.
    """

    def __init__(
        self,
        order: Order,
        ordered: Ordered,
        planned: PlannedPartition | LeftPartition,
        failed: Mapping[int, Unusable] | None = None,
    ) -> None:
        placement, name = ordered.placement, ordered.name
        self._key = placement.key
        self._key_format = placement.key_format
        self._offset = ordered.offset
        # An opaque stream's own hash is unknown. This one serves only the sample and the heavy keys.
        self._hash = MURMUR2 if placement.hash == OPAQUE else ordered.hash
        self._stays = ordered.read.stays(ordered.declared) if isinstance(ordered, OrderedStream) else None
        self._home = np.uint64(placement.partitions), np.uint64(planned.partition % placement.partitions)
        self._range = planned.start, planned.end
        kept = order.task.filters.get(name)
        self._modulus = kept.modulus if kept else 0
        self._residues = np.array(kept.residues if kept else (), np.uint64)
        self._takes_keys = not order.task.null_keys
        rule = order.task, name, ordered.null_keys, planned.partition, None
        self._keyless = _NUMBERS[disposition(*rule)]
        self._unread = _NUMBERS[disposition(*rule, usable=False)]
        self._sets_aside = isinstance(ordered, OrderedStream) and ordered.declared.sets_aside
        self._failed = failed or {}
        self._anew = Replan(order.pipeline)

    def unbroken(self, batch: Batch) -> Unbroken | None:
        """What the task takes of an unbroken batch, without a look at each of its records; None for other batches.

        Raises Refused as `look` does.
        """
        keys, hashes, has_key, offsets, unread = self._known(batch)
        if len(has_key) or unread or self._failed or not self._takes_keys or not len(offsets):
            return None
        if self._stays is not None:
            return None
        start, end = self._bounds(batch)
        if offsets[0] < start or offsets[-1] >= end or not batch.once("consecutive", lambda: _consecutive(offsets)):
            return None
        if not self._modulus:
            return Unbroken(keys, hashes, offsets, None)
        if self._modulus > len(hashes):
            return None
        # So are the rows by residue: each task picks its own.
        modulus = hashes.dtype.type(self._modulus)
        rows, begins = batch.once((self._key, self._hash, self._modulus), lambda: rows_by_residue(hashes, modulus))
        return Unbroken(keys, hashes, offsets, rows_of(self._residues.tolist(), rows, begins))

    def look(self, batch: Batch) -> Taken:
        """The disposition of each record.

        Raises Refused if an offset is null or the keys do not fit the declared format.
        """
        keys, hashes, has_key, numbers, unread = self._known(batch)
        dispositions = np.empty(len(keys), np.uint8)
        _decide(
            hashes,
            has_key,
            numbers,
            self._bounds(batch),
            hashes.dtype.type(self._modulus),
            self._residues.astype(hashes.dtype, copy=False),
            self._takes_keys,
            self._keyless,
            dispositions,
        )
        unusable = {}
        if self._sets_aside:
            unusable = {row: why for row, why in unread.items() if dispositions[row] != OUTSIDE}
            dispositions[list(unusable)] = self._unread
            for row, offset in enumerate(numbers.tolist()) if self._failed else ():
                if offset in self._failed and dispositions[row] == TAKEN:
                    unusable[row], dispositions[row] = self._failed[offset], SET_ASIDE
        if self._stays is not None:
            self._leave_others(hashes, has_key, dispositions)
        return Taken(keys, hashes, has_key, numbers, dispositions, unusable)

    def _leave_others(self, hashes: np.ndarray, has_key: np.ndarray, dispositions: np.ndarray) -> None:
        """Leave the records that move to those that move them; or all others, with those that are set aside."""
        count, home = self._home
        others = (hashes % count == home) != self._stays
        if len(has_key):
            others &= has_key
        dispositions[others & (dispositions == TAKEN)] = LEFT
        if not self._stays:
            dispositions[dispositions == SET_ASIDE] = LEFT

    def _bounds(self, batch: Batch) -> tuple[int, int]:
        """The offsets that the task may read of a batch."""
        return max(self._range[0], batch.first), min(self._range[1], batch.end)

    def _known(self, batch: Batch) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray, Mapping[int, Unusable]]:
        # Tasks that read together share the hashes.
        return batch.once((self._key, self._hash), lambda: self._hashed(batch))

    def _hashed(self, batch: Batch) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray, Mapping[int, Unusable]]:
        """The keys, their hashes, the flags of keys that are not null, the offsets, and the records that cannot be
        used."""
        offsets = batch.records.column(self._offset)
        keys = batch.records.column(self._key) if self._key else pa.nulls(len(offsets))
        if offsets.null_count:
            what = f"{offsets.null_count} records have no offset in column {self._offset!r}"
            then = "land the file again with an offset for each record"
            raise Refused.of(Kind.RECORD, what, batch.where, then, offset=self._offset, null_count=offsets.null_count)
        # So DuckDB writes each key with text that is not UTF-8, which an expression can make.
        if key_parts(self._key) and (empty := pc.sum(pc.equal(pc.binary_length(keys), 0)).as_py()):
            what = f"{empty:,} keys {self._key} have text that is not UTF-8, and cannot be told from each other"
            correct = ("correct the expression that makes the text, then ", self._anew)
            raise Refused.of(Kind.KEY, what, batch.where, correct, key=self._key)
        unread = {}
        if WHY.name in batch.records.schema.names:
            said = batch.records.column(WHY.name)
            unread = {row: Unusable(why) for row, why in enumerate(said.to_pylist()) if why is not None}
        try:
            hashes = placement_hashes(keys, self._key_format, self._hash)
        except Refused:
            if not self._sets_aside:
                raise
            wrong = self._wrong_keys(keys)
            unread |= wrong
            keys = pa.array([None if row in wrong else key.as_py() for row, key in enumerate(keys)], keys.type)
            hashes = placement_hashes(keys, self._key_format, self._hash)
        return keys, hashes, keyed(keys, hashes, self._hash), offsets.cast(pa.int64()).to_numpy(), unread

    def _wrong_keys(self, keys: pa.Array) -> Mapping[int, Unusable]:
        """The keys that cannot be hashed, found by halving. Raises Refused if that holds for any key of their type."""
        placement_hashes(keys.slice(0, 0), self._key_format, self._hash)
        wrong, spans = {}, [(0, len(keys))]
        while spans:
            start, count = spans.pop()
            some = keys.slice(start, count)
            try:
                placement_hashes(some, self._key_format, self._hash)
            except Refused as error:
                if count > 1:
                    spans += [(start, count // 2), (start + count // 2, count - count // 2)]
                else:
                    wrong[start] = Unusable(f"the key cannot be used: {error.findings[0].what}")
        return wrong


@njit(cache=True, nogil=True)
def _consecutive(offsets):  # type: ignore[no-untyped-def]
    others = 0
    for i in range(len(offsets)):
        others += offsets[i] != offsets[0] + i
    return others == 0


@njit(cache=True, nogil=True)
def _decide(hashes, has_key, offsets, bounds, modulus, residues, takes_keys, keyless, dispositions):  # type: ignore[no-untyped-def]
    start, end = bounds
    for i in range(len(hashes)):
        if offsets[i] < start or offsets[i] >= end:
            dispositions[i] = OUTSIDE
        elif len(has_key) and not has_key[i]:
            dispositions[i] = keyless
        elif not takes_keys or (modulus and not is_one_of(hashes[i] % modulus, residues)):
            dispositions[i] = LEFT
        else:
            dispositions[i] = TAKEN
