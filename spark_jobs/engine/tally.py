"""Tally: counts the rows that steps make, on their way to the writers, by the partitions to which they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from partitioning.model.composite_key import key_columns
from partitioning.model.graph import state_of
from partitioning.model.leaving import GONE, Leaving
from partitioning.model.order import Order
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Changed, Keyed, Made, Role
from partitioning.model.table_parts import alone, is_written
from spark_jobs.engine.arrays import mask, numbers
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.states import GOT
from spark_jobs.tables.table_schema import RESIDUE


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


@dataclass(slots=True)
class Tally:
    """The numbers of rows that the steps of one run of an order made."""

    made: list[Made] = field(default_factory=list)

    @contextmanager
    def rows(self, role: Role, name: str, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatchReader]:
        """The same rows, counted. Rows that the writer does not read are counted too."""
        count = 0

        def passing() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in rows:
                count += len(batch)
                yield batch

        counted = passing()
        yield pa.RecordBatchReader.from_batches(rows.schema, counted)
        for _ in counted:
            pass
        self.made.append(Made(role, name, count))

    def gone(
        self, order: Order, write: PlannedWrite, rows: pa.RecordBatchReader
    ) -> tuple[Counter[int], list[pa.RecordBatch]]:
        """How many of these rows of an upserted table lie in each of its partitions, and the key and partition of each
        beside which new ones are written."""
        leaving, gone, keys = _leaving(order, write), Counter[int](), list[pa.RecordBatch]()
        for batch in rows:
            places = destinations(leaving, order.task.task, batch)
            gone.update(_counted(places))
            if write.beside:
                stay = ~np.isin(places, write.merged)
                named = batch.select(list(key_columns(write.declared.key)))
                keys.append(named.append_column(RESIDUE, numbers(places)).filter(mask(stay)))
        return gone, keys

    @contextmanager
    def upserted(
        self,
        order: Order,
        write: PlannedWrite,
        rows: pa.RecordBatchReader,
        gone: Counter[int],
        replaced: Keyed | None,
    ) -> Iterator[pa.RecordBatchReader]:
        """The same rows of an upserted table, counted for each partition that has to be written again, beside those
        that are `gone` for them, and the keys that are `replaced`."""
        leaving = _leaving(order, write)
        mine = alone(leaving.placement, order.cosets, order.task.owns)
        there, come, changed = Counter[int](), Counter[int](), set[int]()

        def passing() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                places = destinations(leaving, order.task.task, batch)
                stays = ~batch.column(GONE.name).to_numpy(zero_copy_only=False)
                got = batch.column(GOT).to_numpy(zero_copy_only=False)
                whole = np.isin(places, write.merged) if write.beside else True
                there.update(_counted(places[stays & (got | whole)]))
                there.update(dict.fromkeys(np.unique(places).tolist(), 0))
                come.update(_counted(places[got & stays]))
                changed.update(np.unique(places[got]).tolist())
                yield batch

        counted = passing()
        yield pa.RecordBatchReader.from_batches(rows.schema, counted)
        for _ in counted:
            pass
        parts = tuple(
            (partition, count)
            for partition, count in sorted(there.items())
            if is_written(partition, mine, write, has_new=partition in changed)
        )
        moved = tuple(Changed(number, gone[number], come[number]) for number in sorted(gone.keys() | come.keys()))
        records = sum(count for _, count in parts)
        self.made.append(Made(Role.TABLE, write.declared.table, records, parts, moved, replaced))


def _leaving(order: Order, write: PlannedWrite) -> Leaving:
    """How the state behind an upserted table lies, and so the table."""
    return next(left for left in order.leaves if left.name == state_of(write.declared.step))


def _counted(places: np.ndarray) -> dict[int, int]:
    numbers, counts = np.unique(places, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
