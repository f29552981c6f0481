"""Writers: stream a task's output to its attempt's folders in the store. Each file is an artefact.

Result tables are Parquet. Output for later tasks is Arrow's stream format, by partition.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import arrow_schema
from coset.sources.files import Files, NewFile
from coset.sources.parts_reader import left_schema
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Repeat
from partitioning.errors import OutcomeUnknown, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import state_of
from partitioning.model.leaving import BATCH, GONE, POSITIONS, TIME, Leaving
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact, PartitionSlice, Role
from partitioning.model.root_names import TABLES
from partitioning.model.table_parts import alone, is_written
from partitioning.model.task_engine import TaskMemory
from partitioning.values import replace
from spark_jobs.engine.arrays import COMPRESSED, LITTLE, numbers, together
from spark_jobs.engine.set_aside import SET_ASIDE_COLUMNS
from spark_jobs.engine.states import GOT
from spark_jobs.engine.tally import destinations
from spark_jobs.tables.column_bounds import Floats, RowsFile, bounds_in
from spark_jobs.tables.footers import footer_in, seal
from spark_jobs.tables.table_schema import table_schema


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows sorted by partition. The rows of `partitions[i]` are [starts[i], starts[i + 1])."""

    rows: pa.RecordBatch
    partitions: np.ndarray
    starts: np.ndarray

    def of(self, partition: int) -> pa.RecordBatch | None:
        place = np.searchsorted(self.partitions, partition)
        if place == len(self.partitions) or self.partitions[place] != partition:
            return None
        return self.rows.slice(self.starts[place], self.starts[place + 1] - self.starts[place])


class Spool:
    """Rows of a schema. So many bytes of them are held in memory; the rest is spilled to files in a folder, `temp`.

    Read it once, after the last row was added.
    """

    def __init__(self, schema: pa.Schema, temp: Path, held: int) -> None:
        self._schema = schema
        self._temp = temp
        self._held = held
        self._rows: list[pa.RecordBatch] = []
        self._places: list[np.ndarray] = []
        self._bytes = 0
        self._runs: list[_Run] = []

    def add(self, rows: pa.RecordBatch, partitions: np.ndarray) -> None:
        """Add rows, with the partition of each (int64)."""
        self._rows.append(rows)
        self._places.append(partitions)
        self._bytes += rows.nbytes
        if self._bytes > self._held:
            self._runs.append(self._kept(self._sorted()))

    def parts(self) -> Iterator[tuple[int, Sequence[pa.RecordBatch]]]:
        """Each partition that has rows, ascending, with its rows."""
        if self._rows:
            self._runs.append(self._sorted())
        for partition in sorted({int(number) for run in self._runs for number in run.partitions}):
            found = (run.of(partition) for run in self._runs)
            yield partition, [rows for rows in found if rows is not None]

    def _sorted(self) -> _Run:
        """Sort the rows in memory, and forget them."""
        places = np.concatenate(self._places)
        order = np.argsort(places, kind="stable")
        table = pa.Table.from_batches(self._rows, self._schema).take(numbers(order)).combine_chunks()
        self._rows, self._places, self._bytes = [], [], 0
        partitions, starts = np.unique(places[order], return_index=True)
        (rows,) = table.to_batches()
        return _Run(rows, partitions, np.append(starts, len(order)))

    def _kept(self, run: _Run) -> _Run:
        """Spill the rows to a file, which is mapped into memory."""
        descriptor, path = tempfile.mkstemp(".arrow", dir=self._temp)
        os.close(descriptor)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            writer.write_batch(run.rows)
        rows = pa.ipc.open_file(pa.memory_map(path)).get_batch(0)
        return _Run(rows, run.partitions, run.starts)


# How many rows of a partition a reader decodes at most at once.
_PART_ROWS = 1 << 15
# How many rows a row group of an upserted table has at most.
_GROUP_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of one run of an order. `run` makes its folders unique, so that no file is ever overwritten."""

    order: Order
    files: Files
    memory: TaskMemory
    run: str

    @classmethod
    def of(cls, order: Order, files: Files, memory: TaskMemory) -> Writers:
        """The writers of a new run."""
        return cls(order, files, memory, secrets.token_hex(4))

    def table(self, write: PlannedWrite, rows: pa.RecordBatchReader) -> Artefact | None:
        """Write a result table's rows to a file. None, and no file, without rows."""
        schema, order = table_schema(write), self.order
        batches = (self._with_lineage(batch, schema, len(write.columns)) for batch in rows)
        path = f"{self._folder(write)}/{order.stage}-{order.task.task}.parquet"
        return self._rows(Role.TABLE, write.declared.table, path, schema, batches)

    def upserted(self, write: PlannedWrite, rows: pa.RecordBatchReader, temp: Path) -> Iterator[Artefact]:
        """Write the partitions of an upserted table in which this batch has keys, each to a new file; where new rows
        are written beside others, a file has these alone.

        `rows` come from `KeptByKey.all`. Rows that do not fit into memory are spilled to the folder `temp`.
        """
        order = self.order
        state = state_of(write.declared.step)
        leaving = next(left for left in order.leaves if left.name == state)
        mine = alone(leaving.placement, order.cosets, order.task.owns)
        spool = Spool(rows.schema, temp, self.memory.sorted)
        for batch in rows:
            spool.add(batch, destinations(leaving, order.task.task, batch))
        for partition, batches in spool.parts():
            if is_written(partition, mine, write, has_new=any(pc.any(batch[GOT]).as_py() for batch in batches)):
                path = f"{self._folder(write)}/{order.stage}-{order.task.task}-{partition}.parquet"
                yield self._partition(write, path, partition, batches)

    def replaced(self, write: PlannedWrite, keys: Sequence[pa.RecordBatch]) -> Artefact | None:
        """Write the keys of an upserted table beside whose rows new ones are written. None, and no file, without."""
        order, found = self.order, [batch for batch in keys if len(batch)]
        if not found:
            return None
        path = f"{self._folder(write)}/{order.stage}-{order.task.task}.replaced.parquet"
        return self._rows(Role.REPLACED, write.declared.table, path, found[0].schema, iter(found))

    def set_aside(self, rows: pa.Table) -> Artefact | None:
        """Write the records that the task set aside. None, and no file, without any."""
        order = self.order
        path = f"{order.pipeline}/set-aside/{order.batch}/attempt-{order.attempt}-{self.run}"
        name = f"{path}/{order.stage}-{order.task.task}.parquet"
        return self._rows(Role.SET_ASIDE, order.stage, name, SET_ASIDE_COLUMNS, iter(rows.to_batches()))

    def given(self, name: str, rows: pa.RecordBatchReader) -> Artefact:
        """Write the input of a step on DataFrames. A file without rows is written too, because it has the schema."""
        order = self.order
        path = f"{order.pipeline}/left/{order.batch}/attempt-{order.attempt}-{self.run}/{name}"

        def write(sink: NewFile) -> int:
            records = 0
            with pa.ipc.new_stream(sink, rows.schema, options=COMPRESSED) as writer:
                for batch in rows:
                    for start in range(0, len(batch), _PART_ROWS):
                        writer.write_batch(batch.slice(start, _PART_ROWS))
                    records += len(batch)
            return records

        return self._put(Role.GIVEN, name, f"{path}/{order.stage}-{order.task.task}.arrow", write)

    def left(self, leaving: Leaving, rows: pa.RecordBatchReader, temp: Path) -> Artefact | None:
        """Write rows for later tasks, by partition and there in their order. None without rows.

        Rows that do not fit into memory are spilled to the folder `temp`.
        """
        order, columns = self.order, arrow_schema(leaving.columns)
        spool = Spool(columns, temp, self.memory.sorted)
        times = list[int]()
        for batch in rows:
            spool.add(_cast(batch, columns), destinations(leaving, order.task.task, batch))
            if TIME in leaving.columns and len(batch):
                times.append(pc.max(batch[TIME.name]).as_py())
        parts = spool.parts()
        first = next(parts, None)
        if first is None:
            return None
        path = f"{order.pipeline}/left/{order.batch}/attempt-{order.attempt}-{self.run}/{leaving.name}"

        def write(sink: NewFile) -> list[PartitionSlice]:
            schema, written = left_schema(columns), []
            with pa.ipc.new_stream(sink, schema, options=COMPRESSED) as writer:
                # The schema is written with the first batch, before the first partition.
                writer.write_batch(pa.RecordBatch.from_pylist([], schema))
                for partition, there in (first, *parts):
                    start, records = sink.size, 0
                    for some in _cut(there, self.memory):
                        position = numbers(_positions(order.task.task, records, len(some)))
                        batch = pa.RecordBatch.from_arrays([*some.columns, position], schema=schema)
                        if batch.nbytes < LITTLE:
                            sink.write(batch.serialize())
                        else:
                            writer.write_batch(batch)
                        records += len(some)
                    written.append(PartitionSlice(partition, start, sink.size, records))
            return written

        artefact = self._put(leaving.role, leaving.name, f"{path}/{order.stage}-{order.task.task}.arrow", write)
        if leaving.role is not Role.STATE:
            return artefact
        return replace(artefact, task=order.task.task, latest=max(times, default=None))

    def _folder(self, write: PlannedWrite) -> str:
        run = f"attempt-{self.order.attempt}-{self.run}"
        return f"{TABLES}{write.declared.table}/data/plan-{self.order.batch}/{run}"

    def _partition(self, write: PlannedWrite, path: str, partition: int, batches: Sequence[pa.RecordBatch]) -> Artefact:
        """Write a partition of an upserted table. It may have no rows any more."""
        floats = dict[str, Floats]()

        def to(sink: NewFile) -> list[PartitionSlice]:
            records = 0
            with RowsFile(sink, table_schema(write), floats) as file:
                for some in together(batches, _GROUP_ROWS, self.memory.sorted):
                    rows = pa.Table.from_batches(some)
                    stay = pc.invert(rows[GONE.name])
                    kept = rows.filter(pc.and_(stay, rows[GOT]) if write.is_beside(partition) else stay)
                    if len(kept):
                        records += file.write(self._with_origin(kept, write))
            return [PartitionSlice(partition, 0, sink.size, records)]

        return self._put(Role.TABLE, write.declared.table, path, to, floats)

    def _rows(
        self, role: Role, name: str, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> Artefact | None:
        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            return None
        floats = dict[str, Floats]()

        def write(sink: NewFile) -> int:
            with RowsFile(sink, schema, floats) as file:
                return sum(map(file.write, chain((first,), batches)))

        return self._put(role, name, path, write, floats)

    def _put(
        self,
        role: Role,
        name: str,
        path: str,
        write: Callable[[NewFile], int | list[PartitionSlice]],
        floats: Mapping[str, Floats] | None = None,
    ) -> Artefact:
        """Write a new file. `write` returns its number of records, or the slice of each partition. It finds what
        there is of `floats`."""
        uri = self.order.uri(path)
        with reaching("the file cannot be written", uri, AGAIN):
            written, sink, size, etag = self.files.written(uri, write)
        if size != sink.size:
            what = f"{sink.size} bytes were written, {size} bytes are there"
            raise OutcomeUnknown.of(Kind.STORE_UNKNOWN, what, uri, Repeat(), written=sink.size, found=size)
        parts = () if isinstance(written, int) else tuple(written)
        records = written if isinstance(written, int) else sum(part.records for part in parts)
        digest = f"sha256:{sink.digest.hexdigest()}"
        if role is not Role.TABLE or (footer := footer_in(sink.tail)) is None:
            return Artefact(role, name, path, size, etag, digest, records, parts)
        if footer.num_rows != records:
            what = f"the file has {footer.num_rows} records, {records} were written to it"
            raise Refused.of(Kind.TASK_FILES, what, uri, Repeat(), file=path)
        sealed = seal(size, etag, digest, records, footer.schema.to_arrow_schema())
        bounds = bounds_in(footer, floats or {}, self.order.private or ())
        return Artefact(role, name, path, size, etag, digest, records, parts, seal=sealed, bounds=bounds)

    def _with_lineage(self, batch: pa.RecordBatch, schema: pa.Schema, width: int) -> pa.RecordBatch:
        """Rows with the lineage columns, which a schema has after its first `width` columns."""
        lineage = {"_batch": self.order.batch, "_task": self.order.task.task}
        columns = _cast(batch, pa.schema(list(schema)[:width])).columns
        columns += [pa.repeat(pa.scalar(lineage[field.name], field.type), len(batch)) for field in list(schema)[width:]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _with_origin(self, rows: pa.Table, write: PlannedWrite) -> pa.Table:
        """Rows of an upserted table. Their lineage is the batch that brought them and the task that wrote them last."""
        schema, columns = table_schema(write), [rows[column.name] for column in write.columns]
        if write.declared.lineage:
            columns += [rows[BATCH.name], pa.repeat(pa.scalar(self.order.task.task), len(rows))]
        return pa.Table.from_arrays(columns, schema.names).cast(schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types of a schema."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cut(batches: Sequence[pa.RecordBatch], memory: TaskMemory) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that a reader decodes at once. If they fit into one batch they are put together."""
    every = pa.Table.from_batches(batches)
    most = memory.rows(_PART_ROWS, every.nbytes // max(1, len(every)))
    for batch in every.combine_chunks().to_batches() if len(every) <= most else batches:
        for start in range(0, len(batch), most):
            yield batch.slice(start, most)


def _positions(task: int, first: int, count: int) -> np.ndarray:
    """The positions of a task's rows in a partition, from row number `first` on."""
    return np.arange(first, first + count, dtype=np.int64) + task * POSITIONS
