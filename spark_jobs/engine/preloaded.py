"""Imports what every task needs, so that processes forked from this one start at once.

The only threads afterwards are those of NumPy and Arrow, which survive a fork.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - DuckDB imports it when the first table is registered
import pyarrow as pa

import partitioning.documents.s3_store  # noqa: F401 - a store imports it when its root is in S3
import spark_jobs.engine.kernel  # noqa: F401
from coset.sources.reader import Batch
from partitioning.model.order import Order, OrderedStream
from partitioning.model.placement import Placement
from partitioning.model.stage_inputs import PlannedPartition, StreamInput
from partitioning.model.streams import OFFSET, NullKeys, Stream
from partitioning.model.takes import Residues, Task
from spark_jobs.engine.intake import Proved


def _prove(cosets: int, *batches: list[int]) -> None:
    """Look at records at these offsets as a task does: the first call of each function makes Numba load it."""
    declared = Stream("s", "", "k", 1, null_keys=NullKeys.DROP)
    placement = Placement(declared.key, declared.key_format, declared.hash, declared.partitions)
    planned = PlannedPartition(0, 0, 0, 0, 9, 1, ())
    ordered = OrderedStream(StreamInput("s", placement, 1, declared.null_keys, None), declared, (), (planned,))
    task = Task(0, {"s": (0,)}, {"s": Residues(cosets, (0,))} if cosets > 1 else {}, owns=(0,))
    proved = Proved(Order("", "", 0, 0, "", "", cosets, task, (ordered,), (), (), (), 1), ordered, planned)
    for offsets in batches:
        keys = pa.array(["k"] * len(offsets), pa.string())
        proved.rows(Batch(0, 0, 9, "", pa.record_batch({"k": keys, OFFSET: pa.array(offsets, pa.int64())})))


# Whole partitions and a part of one, at consecutive offsets and others.
_prove(1, [0, 1, 2], [4])
_prove(2, [0, 1, 2], [4, 6])
# The garbage collector of forked processes would touch, and so copy, the memory that they share.
gc.freeze()
