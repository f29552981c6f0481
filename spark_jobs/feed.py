"""A feed: a stream as one task reads it, from the plan's pinned files to Arrow batches for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan, PlannedStream, Stage
from partitioning.model.receipt import PartitionReceipt
from partitioning.model.streams import InputFile
from partitioning.model.tasks import Task
from sources.s3 import split, version
from spark_jobs.inspection import Inspection, Rules, rules_of
from spark_jobs.sql.check import PARTITION, columns_needed

Inspect = Callable[[PlannedStream, Rules], Inspection]

_AGAIN = "run the same command again"
_RESTORE = "restore the file as it was planned"

# Large enough that the work per batch does not count, small enough to stay near the processor.
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A file, open, as it was when the batch was planned."""

    file: InputFile
    handle: pa.NativeFile


class Feed:
    """The records of one stream that are a task's, inspected while they are read.

    DuckDB reads it through Arrow's stream interface, once; `drain` reads what DuckDB left over, so that
    the receipts are those of the whole planned range. `error` is what went wrong while DuckDB was reading.

    Raises Refused, with all findings, if a file is not as it was when the batch was planned.
    """

    def __init__(self, plan: Plan, stage: Stage, task: Task, stream: str, files: FileSystem, inspect: Inspect) -> None:
        self.stream = plan.stream(stream)
        self.error: Exception | None = None
        self._files = files
        self.inspections = {
            partition: inspect(self.stream, rules_of(stage, task, self.stream, partition, plan.key_sample))
            for partition in task.reads.get(stream, ())
        }
        self._pinned = self._open()
        self._columns = _columns_read(stage, self.stream)
        self._numbered = any(PARTITION in text.lower() for step in stage.steps for text in step.expressions)
        self._given_out = False
        self._reading = Lock()
        self._batches: Iterator[pa.RecordBatch] = iter(())
        if not self.empty:
            self.schema = self._schema()
            self._batches = self._read()

    @property
    def empty(self) -> bool:
        """Whether there is no file to read."""
        return not any(self._pinned.values())

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that SQL sees, and their DuckDB types."""
        types = {column.name: column.type for column in self.stream.columns if column.name in self._columns}
        return types | ({PARTITION: "INTEGER"} if self._numbered else {})

    def drain(self) -> None:
        """Read to the planned end whatever was not read yet."""
        while self._next() is not None:
            pass
        if self.error is not None:
            raise self.error

    def receipts(self) -> tuple[PartitionReceipt, ...]:
        """What was seen of each stream partition."""
        return tuple(inspection.receipt() for inspection in self.inspections.values())

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        # A second reader would silently find nothing.
        if self._given_out:
            raise RuntimeError(f"stream {self.stream.name} is read twice")
        self._given_out = True
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded()).__arrow_c_stream__(requested_schema)

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        """The next batch; what goes wrong is kept, because DuckDB passes on no more than its text."""
        # DuckDB's threads may still be reading ahead when its query has ended.
        with self._reading:
            try:
                return next(self._batches, None)
            except Exception as error:
                self.error = error
                raise

    def _open(self) -> dict[int, list[_Pinned]]:
        findings: list[Finding] = []
        pinned: dict[int, list[_Pinned]] = {partition: [] for partition in self.inspections}
        for partition, opened in pinned.items():
            planned = self.stream.partitions[partition]
            for file in planned.files:
                try:
                    opened.append(_Pinned(file, _open_as_planned(self._files, file)))
                except Refused as refusal:
                    findings.extend(refusal.findings)
        if findings:
            raise Refused(*findings)
        return pinned

    def _schema(self) -> pa.Schema:
        """What each batch is cast to: the first file's types, dictionaries decoded. DuckDB does the rest."""
        first = next(pinned for opened in self._pinned.values() for pinned in opened)
        with _reading(first.file):
            there = pq.ParquetFile(first.handle).schema_arrow
        fields = [_plain(_field(there, name, first.file)) for name in self._columns]
        return pa.schema(fields + ([pa.field(PARTITION, pa.int32())] if self._numbered else []))

    def _read(self) -> Iterator[pa.RecordBatch]:
        for partition, inspection in self.inspections.items():
            for pinned in self._pinned[partition]:
                for batch in self._file_batches(pinned, inspection):
                    taken = inspection.take(batch, pinned.file)
                    if len(taken):
                        yield self._projected(taken, partition)

    def _file_batches(self, pinned: _Pinned, inspection: Inspection) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys((*self._columns, *inspection.columns)))
        with _reading(pinned.file):
            file = pq.ParquetFile(pinned.handle, pre_buffer=True)
            for name in wanted:
                _field(file.schema_arrow, name, pinned.file)
            # One row group at a time: that is all of the file that is held in memory.
            for group in self._row_groups(file, pinned.file, inspection.rules):
                batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted, use_threads=False)
                while (batch := next(batches, None)) is not None:
                    yield batch
        # Still the same: so what was read in between was what the plan means.
        _open_as_planned(self._files, pinned.file).close()

    def _row_groups(self, file: pq.ParquetFile, planned: InputFile, rules: Rules) -> list[int]:
        """The row groups that may hold planned offsets."""
        groups = range(file.metadata.num_row_groups)
        if rules.start <= planned.start and planned.end <= rules.end:
            return list(groups)
        offset = self.stream.declared.offset
        return [group for group in groups if _may_hold(file.metadata.row_group(group), offset, rules)]

    def _projected(self, batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for field in self.schema
            if field.name != PARTITION
            for column in (batch.column(field.name),)
        ]
        if self._numbered:
            columns.append(pa.repeat(pa.scalar(partition, pa.int32()), len(batch)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _columns_read(stage: Stage, stream: PlannedStream) -> tuple[str, ...]:
    """What SQL needs, and of a table the offset too: it tells a key's latest record."""
    needed = columns_needed(stage, stream)
    also = stream.declared.offset if stream.declared.table else stream.declared.key
    return tuple(column.name for column in stream.columns if column.name in (*needed, also))


def _open_as_planned(files: FileSystem, file: InputFile) -> pa.NativeFile:
    try:
        handle = files.open_input_file("/".join(split(file.path)))
    except FileNotFoundError as error:
        raise Refused(Finding("the file is gone since the batch was planned", file.path, _RESTORE)) from error
    except OSError as error:
        raise Refused(Finding(f"the file cannot be opened: {error}", file.path, _AGAIN)) from error
    size, etag = version(handle)
    if (size, etag) != (file.size, file.etag):
        raise Refused(
            Finding(
                f"the file was changed since the batch was planned: planned {file.size} bytes, etag {file.etag}, "
                f"found {size} bytes, etag {etag}",
                file.path,
                _RESTORE,
            )
        )
    return handle


@contextmanager
def _reading(file: InputFile) -> Iterator[None]:
    """Say which file it was that could not be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        what = " ".join(str(error).split())
        raise Refused(
            Finding(f"the file cannot be read: {what}", file.path, f"{_AGAIN}; else land it again")
        ) from error


def _field(schema: pa.Schema, name: str, file: InputFile) -> pa.Field:
    if name not in schema.names:
        listed = ", ".join(schema.names)
        raise Refused(Finding(f"the file has no column {name!r}, only {listed}", file.path, "land it with that column"))
    return schema.field(name)


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def _may_hold(group: pq.RowGroupMetaData, offset: str, rules: Rules) -> bool:
    columns = (group.column(number) for number in range(group.num_columns))
    statistics = next(column.statistics for column in columns if column.path_in_schema == offset)
    if statistics is None or not statistics.has_min_max:
        return True
    return statistics.min < rules.end and statistics.max >= rules.start
