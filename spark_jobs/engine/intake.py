"""Intake: the input of an order as DuckDB reads it. Each record is taken or left, and proved, on the way.

The latest time of the records that are taken of a stream partition is for the stream's watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.databases import connect_to_ask
from coset.sources.reader import Batch, Reader, ahead
from partitioning.authoring.state_sql import microseconds_of, time_that_counts
from partitioning.model.graph import quote
from partitioning.model.leaving import BATCH, DAY_END, LeftPartition
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.receipt import PartitionReceipt
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import Column
from partitioning.model.watermarks import EventTime
from partitioning.values import replace
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import one_of_equals
from spark_jobs.engine.partition_claims import Claims
from spark_jobs.engine.proof import Proof
from spark_jobs.engine.set_aside import SetAsideRecord, set_aside_of
from spark_jobs.engine.take import TAKEN, Take, Unusable
from spark_jobs.sql.column_check import PARTITION
from spark_jobs.sql.expressions import columns_named, parse
from spark_jobs.sql.left_columns import columns_needed, functions_see_all


class Inspection(Protocol):
    """What happens to the records of one partition before SQL sees them."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it needs beside those of SQL."""

    def rows(self, batch: Batch) -> np.ndarray | None:
        """The rows of a batch that the task takes, ascending; None if it takes all."""

    def receipt(self) -> PartitionReceipt:
        """The figures so far."""

    def keys(self) -> pa.Table:
        """The sampled keys: columns `key` and `offset`."""

    def set_aside(self) -> Sequence[SetAsideRecord]:
        """The records that the task set aside so far."""


Inspect = Callable[[Order, Ordered, PlannedPartition | LeftPartition], Inspection]


class Proved:
    """Takes the task's records and proves them. Those at the offsets of `failed` cannot be used."""

    def __init__(
        self,
        order: Order,
        ordered: Ordered,
        planned: PlannedPartition | LeftPartition,
        failed: Mapping[int, Unusable] | None = None,
    ) -> None:
        key = ordered.placement.key
        self._times = event_times(order, ordered)
        needed = (key, ordered.offset) if key else (ordered.offset,)
        self.columns = (*needed, *self._times.columns) if self._times else needed
        self._take = Take(order, ordered, planned, failed)
        self._private = bool(order.private)
        self._set_aside = list[SetAsideRecord]()
        self._proof = Proof(ordered, planned, Claims.of(order, ordered, planned))
        self.keys = self._proof.keys

    def rows(self, batch: Batch) -> np.ndarray | None:
        """The rows of a batch that the task takes. Raises Refused as `Take.look` does."""
        unbroken = self._take.unbroken(batch)
        as_claimed = unbroken is not None and self._proof.note_unbroken(batch, unbroken)
        rows = unbroken.rows if unbroken and as_claimed else self._looked_at(batch)
        if self._times:
            self._times.note(of_rows(batch.records.select(self._times.columns), rows))
        return rows

    def _looked_at(self, batch: Batch) -> np.ndarray | None:
        """The rows of a batch of which each has to be looked at."""
        seen = self._take.look(batch)
        self._proof.note(batch, seen)
        if seen.unusable:
            self._set_aside.extend(set_aside_of(batch, seen, private=self._private))
        taken = np.flatnonzero(seen.dispositions == TAKEN)
        return taken if len(taken) < len(batch.records) else None

    def receipt(self) -> PartitionReceipt:
        """The figures so far."""
        figures = self._proof.receipt()
        return replace(figures, latest=self._times.latest) if self._times else figures

    def set_aside(self) -> Sequence[SetAsideRecord]:
        return self._set_aside


def of_rows(records: pa.RecordBatch, rows: np.ndarray | None) -> pa.RecordBatch:
    """The records of these rows, all if it is None."""
    return records if rows is None else records.take(numbers(rows))


class Intake:
    """The records of one input that the task takes, inspected while they are read.

    DuckDB reads its `stream` once. `drain` reads what DuckDB did not, so that receipts are of the whole planned range.
    `error` is the error of reading, which DuckDB would pass on as text only. Several tasks may share the reader;
    `read_together` reads for them.
    """

    def __init__(self, order: Order, ordered: Ordered, reader: Reader, inspect: Inspect = Proved) -> None:
        self.ordered = ordered
        self.error: BaseException | None = None
        self.inspections = {planned.partition: inspect(order, ordered, planned) for planned in ordered.partitions}
        self._reader = reader
        self._columns = _columns_read(order, ordered)
        self._numbered = isinstance(ordered, OrderedStream) and _names_partition(order)
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._needed_keys: tuple[pa.Array, int] | None = None
        if not self.empty:
            numbers = [pa.field(PARTITION, pa.int32())] if self._numbered else []
            self.schema = pa.schema([*reader.schema(self._columns), *numbers])
            self._batches = self._read()

    @property
    def empty(self) -> bool:
        """Whether the input has nothing to read."""
        return self._reader.empty

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that SQL sees, with their DuckDB types."""
        types = {column.name: column.type for column in self.ordered.columns if column.name in self._columns}
        return types | ({PARTITION: "INTEGER"} if self._numbered else {})

    def drain(self) -> None:
        """Read the rest, up to the planned end. Raises the error of any reading so far."""
        while self._next() is not None:
            pass
        if self.error is not None:
            raise self.error

    def receipts(self) -> tuple[PartitionReceipt, ...]:
        """The figures of each partition."""
        return tuple(inspection.receipt() for inspection in self.inspections.values())

    def stream(self) -> Any:
        """The records as Arrow's C stream, which DuckDB refuses to read twice. Given an object with such a stream
        instead, it would have PyArrow read far ahead, in threads that hand all records over to its own."""
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded()).__arrow_c_stream__()

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        """The next batch. An error is kept, because DuckDB passes on only its text."""
        try:
            return next(self._batches, None)
        except BaseException as error:
            self.error = error
            raise

    @property
    def needed(self) -> Sequence[str]:
        """The columns to read."""
        return [*self._columns, *(name for inspection in self.inspections.values() for name in inspection.columns)]

    def taken(self, batch: Batch) -> pa.RecordBatch | None:
        """The records of a batch that the task takes, as SQL sees them. None if it takes none."""
        inspection = self.inspections.get(batch.partition)
        if inspection is None:
            return None
        # Rows are copied of what SQL sees only.
        records = of_rows(batch.records.select(self._columns), inspection.rows(batch))
        return self._projected(records, batch.partition) if len(records) else None

    def narrow(self, keys: pa.Array, batch: int) -> None:
        """Let SQL read no rows of state but those of these keys, and those of later batches than this. All are proved.
        Call it before anything is read."""
        self._needed_keys = keys.cast(self.schema.field(self.ordered.placement.key).type), batch

    def give(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Let SQL read these batches, which `taken` returned for the whole input."""
        self._batches = batches

    def _read(self) -> Iterator[pa.RecordBatch]:
        for batch in ahead(self._reader.batches(self.needed), _offsets(self.ordered)):
            records = self.taken(batch)
            if records is not None and len(narrowed := self._narrowed(records)):
                yield narrowed

    def _narrowed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        if self._needed_keys is None:
            return records
        keys, batch = self._needed_keys
        has_key = pc.is_in(records.column(self.ordered.placement.key), value_set=keys)
        return records.filter(pc.or_(has_key, pc.greater(records.column(BATCH.name), batch)))

    def _projected(self, records: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        columns = [
            self._as_sql_sees(records.column(field.name), field)
            for field in self.schema
            if not (self._numbered and field.name == PARTITION)
        ]
        if self._numbered:
            columns.append(pa.repeat(pa.scalar(partition, pa.int32()), len(records)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _as_sql_sees(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """A column in its declared type. Equal keys get one spelling: results must not depend on which came first."""
        if field.name == self.ordered.placement.key:
            column = one_of_equals(column)
        return column if column.type == field.type else column.cast(field.type)


def _offsets(ordered: Ordered) -> int:
    """How many records an input has at most."""
    return sum(planned.end - planned.start for planned in ordered.partitions)


def _names_partition(order: Order) -> bool:
    """Whether a step, or a reader of the task's output, uses the partition number of a record. Functions may."""
    if functions_see_all(order.steps):
        return True
    texts = (text for step in order.steps for text in step.expressions)
    names = (column.name for leaving in order.leaves for column in leaving.columns)
    return any(PARTITION in text.lower() for text in (*texts, *names))


def _given(order: Order) -> Iterator[Column]:
    """The columns of the task's output."""
    for write in order.writes:
        yield from write.columns
    for leaving in order.leaves:
        yield from leaving.columns


def _columns_read(order: Order, ordered: Ordered) -> tuple[str, ...]:
    """The columns that SQL needs. A table needs the offset too, to find a key's latest record."""
    if not isinstance(ordered, OrderedStream):
        return tuple(column.name for column in ordered.columns)
    declared = ordered.declared
    needed = columns_needed(order.steps, _given(order), declared.key, ordered.columns)
    also = declared.offset if declared.table else declared.key
    return tuple(column.name for column in ordered.columns if column.name in (*needed, also))


def read_together(intakes: Sequence[Intake], reader: Reader, folder: Path) -> None:
    """Read an input once for several tasks. The records of each are spilled to a file in the folder."""
    columns = [name for intake in intakes for name in intake.needed]
    with ExitStack() as open_files:
        writers = []
        for number, intake in enumerate(intakes):
            file = open_files.enter_context(pa.OSFile(str(folder / f"{number}.arrow"), "wb"))
            writers.append(open_files.enter_context(pa.ipc.new_stream(file, intake.schema)))
        for batch in ahead(reader.batches(columns), sum(_offsets(intake.ordered) for intake in intakes)):
            for intake, writer in zip(intakes, writers, strict=True):
                records = intake.taken(batch)
                if records is not None:
                    writer.write_batch(records)
    for number, intake in enumerate(intakes):
        intake.give(iter(pa.ipc.open_stream(pa.memory_map(str(folder / f"{number}.arrow")))))


class EventTimes:
    """The latest event time of the records noted so far, in microseconds. A record whose time cannot be worked out has
    none here; the step that goes by it says so."""

    def __init__(self, columns: tuple[Column, ...], event: EventTime, day_end: int | None) -> None:
        self.latest: int | None = None
        named = _columns_of(event.sql)
        self._columns = tuple(column for column in columns if column.name.lower() in named)
        counts = time_that_counts("@at", event.ahead)
        typed = (f"{quote(column.name)}::{column.type} AS {quote(column.name)}" for column in self._columns)
        listed = ", ".join(typed) or "1"
        times = f'SELECT TRY({microseconds_of(event.sql)}) AS "@at" FROM (SELECT {listed} FROM "@records")'
        self._sql = f"SELECT max({counts}) FROM ({times})"
        self._day_end = day_end

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(column.name for column in self._columns)

    def note(self, records: pa.RecordBatch) -> None:
        """Add the records that the task takes of a batch."""
        if not len(records):
            return
        with connect_to_ask() as connection:
            if self._day_end is not None:
                connection.execute(f"SET VARIABLE {quote(DAY_END)} = {self._day_end}::BIGINT")
            connection.register("@records", pa.Table.from_batches([records.select(self.columns)]))
            ((latest,),) = connection.execute(self._sql).fetchall()
        if latest is not None:
            self.latest = latest if self.latest is None else max(self.latest, latest)


def event_times(order: Order, ordered: Ordered) -> EventTimes | None:
    """What notes the times of an input; None if it is no stream that says them."""
    if not isinstance(ordered, OrderedStream) or not ordered.declared.time:
        return None
    return EventTimes(ordered.columns, ordered.declared.time, order.day_end if isinstance(order.day_end, int) else None)


@lru_cache(maxsize=64)
def _columns_of(sql: str) -> frozenset[str]:
    """The names in an expression, in small letters."""
    with connect_to_ask() as connection:
        return frozenset(part.lower() for parts in columns_named(parse(connection, sql)) for part in parts)
