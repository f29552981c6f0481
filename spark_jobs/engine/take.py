"""Take: which records of a partition are a task's. The compiled twin of `partitioning.model.takes.fate`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from coset.sources.reader import Batch
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.plan import PlannedPartition
from partitioning.model.takes import Fate, fate
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.residues import is_one_of

# Fates as numbers; a record outside the planned range, or of what its file says it holds, has none.
OUTSIDE, LEFT, TAKEN, DROPPED, REFUSED = range(5)
_NUMBERS = {Fate.LEFT: LEFT, Fate.TAKEN: TAKEN, Fate.DROPPED: DROPPED, Fate.REFUSED: REFUSED}


@dataclass(frozen=True, slots=True)
class Taken:
    """What becomes of the records of a batch: a fate for each, with its offset and the hash of its key.

    `has_key` has a flag for each record, or is empty if all have keys; where there is none, the hash means nothing.
    """

    keys: pa.Array
    hashes: np.ndarray
    has_key: np.ndarray
    offsets: np.ndarray
    fates: np.ndarray


class Take:
    """What a task takes of one partition, by its order. Each key is hashed once."""

    def __init__(self, order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> None:
        placement, name = ordered.placement, ordered.name
        self._key = placement.key
        self._key_format = placement.key_format
        self._offset = ordered.offset
        # The keys of an opaque stream are hashed for the sample and the heavy ones alone.
        self._hash = MURMUR2 if placement.hash == OPAQUE else placement.hash
        self._range = planned.start, planned.end
        kept = order.task.filters.get(name)
        self._modulus = kept.modulus if kept else 0
        self._residues = np.array(kept.residues if kept else (), np.uint64)
        self._takes_keys = not order.task.null_keys
        self._keyless = _NUMBERS[fate(order.task, name, ordered.null_keys, planned.partition, None)]

    def look(self, batch: Batch) -> Taken:
        """The fate of each record. Raises Refused if an offset is null or keys are not of the declared format."""
        # Keys are hashed once for all tasks that read them together.
        keys, hashes, has_key, numbers = batch.once((self._key, self._hash), lambda: self._hashed(batch))
        fates = np.empty(len(keys), np.uint8)
        _decide(
            hashes,
            has_key,
            numbers,
            (max(self._range[0], batch.first), min(self._range[1], batch.end)),
            hashes.dtype.type(self._modulus),
            self._residues.astype(hashes.dtype, copy=False),
            self._takes_keys,
            self._keyless,
            fates,
        )
        return Taken(keys, hashes, has_key, numbers, fates)

    def _hashed(self, batch: Batch) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray]:
        """The keys, their hashes, which of them are there, and the offsets."""
        offsets = batch.records.column(self._offset)
        keys = batch.records.column(self._key) if self._key else pa.nulls(len(offsets))
        if offsets.null_count:
            raise Refused(
                Finding(
                    Kind.RECORD,
                    f"column {self._offset!r} has {offsets.null_count} records without an offset",
                    batch.where,
                    "land the file again with every record's offset",
                    about(offset=self._offset, null_count=offsets.null_count),
                )
            )
        hashes = placement_hashes(keys, self._key_format, self._hash)
        return keys, hashes, _has_key(keys), offsets.cast(pa.int64()).to_numpy()


def _has_key(keys: pa.Array) -> np.ndarray:
    if keys.null_count == 0:
        return np.empty(0, np.bool_)
    flags: np.ndarray = keys.is_valid().to_numpy(zero_copy_only=False)
    return flags


@njit(cache=True, nogil=True)
def _decide(hashes, has_key, offsets, bounds, modulus, residues, takes_keys, keyless, fates):  # type: ignore[no-untyped-def]
    start, end = bounds
    for i in range(len(hashes)):
        if offsets[i] < start or offsets[i] >= end:
            fates[i] = OUTSIDE
        elif len(has_key) and not has_key[i]:
            fates[i] = keyless
        elif not takes_keys or (modulus and not is_one_of(hashes[i] % modulus, residues)):
            fates[i] = LEFT
        else:
            fates[i] = TAKEN
