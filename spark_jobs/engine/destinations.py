"""Destinations: which partition each row of a task's output goes to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from partitioning.model.leaving import Leaving
from partitioning.model.placement import OPAQUE
from spark_jobs.engine.hashing import placement_hashes


def destinations(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
    """The partition number of each row (int64), by the hash of its key. Rows without a key go to the first partition.

    If the output has no key, or its hash is unknown, all rows go to the partition of the task.
    """
    placement, first = leaving.placement, leaving.numbers.start
    if not placement.key or placement.hash == OPAQUE:
        return np.full(len(rows), first + task % placement.partitions, np.int64)
    keys = rows.column(placement.key)
    partitions = (placement_hashes(keys, placement.key_format, placement.hash) % placement.partitions).astype(np.int64)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return np.asarray(partitions + first)
