"""Orders made by hand, for tests of what a task does with the records that it reads: no plan, no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.model.graph import Write
from partitioning.model.order import Order, OrderedStream
from partitioning.model.placement import Placement
from partitioning.model.plan import PlannedWrite
from partitioning.model.stage_inputs import PlannedPartition, StreamInput
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.model.takes import Task

COLUMNS = (Column("k", "VARCHAR"), Column("record", "BIGINT"), Column("_offset", "BIGINT"))
ROWS = PlannedWrite(Write("rows", "views", "k", lineage=False, expectations=()), COLUMNS)


def planned(partition: int, start: int, end: int, files: Sequence[InputFile] = ()) -> PlannedPartition:
    """A range of a partition that some files hold."""
    return PlannedPartition(partition, 0, start, start, end, 1, tuple(files))


def order(
    declared: Stream,
    task: Task,
    partitions: Mapping[int, PlannedPartition],
    *,
    cosets: int,
    lie_by: int | None = None,
    only: tuple[int, ...] | None = None,
    sample: int = 1,
) -> Order:
    """What a task has to do that reads one stream and writes its records as they are.

    The stream's records lie by the hash modulo `lie_by`, which is a divisor of its partition count.
    """
    placement = Placement(declared.key, declared.key_format, declared.hash, lie_by or declared.partitions)
    read = StreamInput(declared.name, placement, declared.partitions, declared.null_keys, only)
    numbers = task.reads.get(declared.name, ())
    key = Column("k", declared.key_format.column_types[0])
    ordered = OrderedStream(read, declared, (key, *COLUMNS[1:]), tuple(partitions[number] for number in numbers))
    return Order("sha256:0", "p", 0, 0, "s3://test", "views", cosets, task, (ordered,), (), (ROWS,), (), sample)
