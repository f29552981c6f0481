"""One partition of a stream `views` as one task sees it, for tests of what is taken and of what is proved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

import pyarrow as pa

from coset.sources.reader import Batch
from partitioning.hashes import placement_hash
from partitioning.model.order import Order, OrderedStream
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import NullKeys, Stream, sparseness
from partitioning.model.takes import Task
from partitioning.values import replace
from spark_jobs.engine.intake import Proved
from tests.orders import order, planned

WHERE = "s3://landing/topics/views/partition=0/views+0+0000000000.parquet"
# Owns the keys of the first of four partitions.
FIRST = Task(0, {"views": (0,)}, owns=(0,), keyless={"views": (0,)})


def views(partitions: int = 4, null_keys: NullKeys = NullKeys.REFUSE) -> Stream:
    return Stream("views", "s3://landing/topics", "k", partitions, null_keys=null_keys)


def proved(
    task: Task = FIRST,
    *,
    partitions: int = 4,
    cosets: int = 4,
    nulls: NullKeys = NullKeys.REFUSE,
    end: int = 1000,
    sample: int = 1,
) -> Proved:
    """What is to be done to the records of partition 0, of which a task reads [0, end)."""
    return Proved(*ordered(task, partitions=partitions, cosets=cosets, nulls=nulls, end=end, sample=sample))


def ordered(
    task: Task = FIRST,
    *,
    partitions: int = 4,
    cosets: int = 4,
    nulls: NullKeys = NullKeys.REFUSE,
    end: int = 1000,
    sample: int = 1,
    sparse: bool = False,
) -> tuple[Order, OrderedStream, PlannedPartition]:
    """The order of a task, its input, and the range [0, end) of partition 0 that it reads."""
    ranges = {number: planned(number, 0, end) for number in range(partitions)}
    declared = replace(views(partitions, nulls), sparse=sparseness("sparse" if sparse else "dense", "views"))
    made = order(declared, task, ranges, cosets=cosets, sample=sample)
    (read,) = made.inputs
    assert isinstance(read, OrderedStream)
    return made, read, read.partitions[0]


def batch_of(keys: Sequence[str | None], offsets: Sequence[int] | None = None, end: int = 1000) -> Batch:
    """Records of partition 0 from a file that says it holds [0, end); their offsets count up if none are given."""
    numbers = list(range(len(keys))) if offsets is None else offsets
    records = pa.record_batch({"k": pa.array(keys, pa.string()), "_offset": pa.array(numbers, pa.int64())})
    return Batch(0, 0, end, WHERE, records)


def keys_of(partition: int, partitions: int, many: int) -> list[str]:
    """So many keys that lie in a partition."""
    keys = (f"key-{number}" for number in count())
    return list(islice((key for key in keys if placement_hash(key) % partitions == partition), many))
