"""Sampled keys: tasks hand them to whoever stores the receipt of their group, which stores them as one object.

A sample is sent in Arrow's stream format. Samples one behind the other are a sample again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from partitioning.model.order import Order
from spark_jobs.engine.arrays import COMPRESSED, LITTLE

SAMPLE_COLUMNS = pa.schema(
    [
        ("stage", pa.string()),
        ("input", pa.string()),
        ("key", pa.string()),
        ("task", pa.int64()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
    ]
)


def sample_of(order: Order, sampled: Iterable[tuple[str, int, pa.Table]]) -> pa.Table:
    """The sampled keys of a task, of these inputs and partitions."""
    return pa.concat_tables([SAMPLE_COLUMNS.empty_table(), *(_rows(order, *each) for each in sampled)])


def packed(samples: Sequence[pa.Table]) -> bytes:
    """Samples as they are sent and stored. Nothing if they have no keys."""
    if not any(map(len, samples)):
        return b""
    sink, keys = pa.BufferOutputStream(), pa.concat_tables(samples).combine_chunks()
    with pa.ipc.new_stream(sink, SAMPLE_COLUMNS, options=None if keys.nbytes < LITTLE else COMPRESSED) as writer:
        writer.write_table(keys)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The keys of packed samples, one behind the other. Raises PyArrow's errors."""
    source, samples = pa.BufferReader(data), list[pa.Table]()
    while source.tell() < len(data):
        samples.append(pa.ipc.open_stream(source).read_all())
    return pa.concat_tables(samples)


def _rows(order: Order, read: str, partition: int, keys: pa.Table) -> pa.Table:
    constant = {"stage": order.stage, "input": read, "task": order.task.task, "partition": partition}
    columns = [
        pa.repeat(pa.scalar(constant[field.name], field.type), len(keys))
        if field.name in constant
        else keys[field.name]
        for field in SAMPLE_COLUMNS
    ]
    return pa.table(columns, schema=SAMPLE_COLUMNS)
