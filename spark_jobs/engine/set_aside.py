"""Records that a task set aside: they cannot be used, and lie in a file beside the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from coset.sources.reader import RAW, Batch, Reader, as_json
from partitioning.model.order import Order, OrderedStream
from partitioning.model.private import MASK
from partitioning.values import replace as changed
from spark_jobs.engine.take import SET_ASIDE, Taken

SET_ASIDE_COLUMNS = pa.schema(
    [
        ("stream", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("file", pa.string()),
        ("step", pa.string()),
        ("why", pa.string()),
        ("raw", pa.binary()),
        ("batch", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class SetAsideRecord:
    """A record of a stream partition, the `file` or topic partition where it lies, why it cannot be used, the step that
    failed on it, if any, and its bytes, if they are known."""

    partition: int
    offset: int
    file: str
    step: str
    why: str
    raw: bytes | None


def set_aside_of(batch: Batch, seen: Taken, *, private: bool) -> Iterator[SetAsideRecord]:
    """The records of a batch that the task set aside. Nothing that may be a value of private columns is told."""
    raws = batch.records.column(RAW.name) if RAW.name in batch.records.schema.names else None
    for row, unusable in sorted(seen.unusable.items()):
        if seen.dispositions[row] == SET_ASIDE:
            raw = MASK.encode() if private else raws[row].as_py() if raws is not None else None
            why, place = unusable.told(private=private), (batch.partition, int(seen.offsets[row]), batch.where)
            yield SetAsideRecord(*place, unusable.step, why, raw)


def with_bytes(
    ordered: OrderedStream, records: Sequence[SetAsideRecord], reader: Callable[[OrderedStream], Reader]
) -> Iterator[SetAsideRecord]:
    """The records with their bytes. Those that could be read are read once more, with all columns, as a JSON object."""
    wanted = {(each.partition, each.offset) for each in records if each.raw is None}
    found: dict[tuple[int, int], bytes] = {}
    if wanted:
        numbers = {partition for partition, _ in wanted}
        there = tuple(planned for planned in ordered.partitions if planned.partition in numbers)
        for batch in reader(changed(ordered, partitions=there)).batches([column.name for column in ordered.columns]):
            offsets = batch.records.column(ordered.offset).to_pylist()
            for row, offset in enumerate(offsets):
                if (batch.partition, offset) in wanted:
                    record = batch.records.slice(row, 1)
                    told = record.column(RAW.name)[0].as_py() if RAW.name in record.schema.names else None
                    found[batch.partition, offset] = told or as_json(record)
    for each in records:
        yield each if each.raw is not None else replace(each, raw=found.get((each.partition, each.offset), b""))


def rows_of(order: Order, stream: str, records: Iterable[SetAsideRecord]) -> pa.Table:
    """The records as they are written."""
    rows = [
        {
            "stream": stream,
            "partition": each.partition,
            "offset": each.offset,
            "file": each.file,
            "step": each.step,
            "why": each.why,
            "raw": each.raw,
            "batch": order.batch,
        }
        for each in records
    ]
    return pa.Table.from_pylist(rows, SET_ASIDE_COLUMNS)
