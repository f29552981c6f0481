"""Landed files as a task reads them: the planned ones, row group by row group, and none that changed before.

That none changed while it was read is seen at the audit, by one listing for all tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from partitioning.errors import Finding, Refused
from partitioning.model.order import OrderedStream
from partitioning.model.plan import PlannedPartition
from partitioning.model.streams import InputFile
from sources.arrow_schema import arrow_schema
from sources.file_columns import columns_of
from sources.pinned import changed, gone, restore
from sources.reader import Batch
from sources.s3 import reaching, split, version

_UNREAD = "the file cannot be read"

# Large enough that the work per batch does not count, small enough to stay near the processor.
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A file, open, as it was when the batch was planned."""

    file: InputFile
    handle: pa.NativeFile


class LandedReader:
    """A stream's landed files that an order names.

    Raises Refused, with all findings, if a file is not as it was when the batch was planned, and Unreachable if the
    store does not give it.
    """

    def __init__(self, ordered: OrderedStream, files: FileSystem, pipeline: str) -> None:
        self._declared = ordered.declared
        self._columns = {column.name: column for column in ordered.columns}
        self._files = files
        self._restore = restore(pipeline)
        self._pinned = self._open(ordered.partitions)

    @property
    def empty(self) -> bool:
        return not any(pinned for _, pinned in self._pinned)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The planned types, as the first file has them if it does, dictionaries decoded; keys, offsets as landed."""
        written = self._first_schema
        landed = {column.name for column in columns_of(written).columns if self._columns.get(column.name) == column}
        landed |= {self._declared.key, self._declared.offset}
        return pa.schema(
            [
                _plain(written.field(name)) if name in landed else arrow_schema((self._columns[name],)).field(0)
                for name in columns
            ]
        )

    @cached_property
    def _first_schema(self) -> pa.Schema:
        first = next(file for _, pinned in self._pinned for file in pinned)
        with reaching(_UNREAD, first.file.path, self._restore):
            return pq.ParquetFile(first.handle).schema_arrow.remove_metadata()

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        wanted = list(dict.fromkeys(columns))
        types = pa.schema([]) if self.empty else self.schema(wanted)
        for planned, pinned in self._pinned:
            for opened in pinned:
                for landed in self._records(planned, opened, wanted):
                    file = opened.file
                    records = self._evolved(landed, types, file)
                    yield Batch(planned.partition, file.start, file.end, file.path, records)

    def _open(self, partitions: Sequence[PlannedPartition]) -> list[tuple[PlannedPartition, list[_Pinned]]]:
        findings: list[Finding] = []
        opened: list[tuple[PlannedPartition, list[_Pinned]]] = []
        for planned in partitions:
            pinned: list[_Pinned] = []
            for file in planned.files:
                try:
                    pinned.append(_Pinned(file, self._open_as_planned(file)))
                except Refused as refusal:
                    findings.extend(refusal.findings)
            opened.append((planned, pinned))
        if findings:
            raise Refused(*findings)
        return opened

    def _records(self, planned: PlannedPartition, pinned: _Pinned, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reaching(_UNREAD, pinned.file.path, self._restore):
            file = pq.ParquetFile(pinned.handle, pre_buffer=True)
            there = set(file.schema_arrow.names)
            wanted = [name for name in columns if name in there]
            # One row group at a time: that is all of the file that is held in memory.
            for group in self._row_groups(file, pinned.file, planned):
                batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted, use_threads=False)
                while (batch := next(batches, None)) is not None:
                    yield batch

    def _evolved(self, records: pa.RecordBatch, types: pa.Schema, file: InputFile) -> pa.RecordBatch:
        """The records with all columns that are wanted, null where the file lacks one, and of the planned types."""
        if records.schema.names == types.names and not any(map(self._differs, records.schema, types)):
            return records
        there = set(records.schema.names)
        columns = [
            self._cast(records.column(field.name), field, file)
            if field.name in there
            else pa.nulls(len(records), field.type)
            for field in types
        ]
        return pa.RecordBatch.from_arrays(columns, names=types.names)

    def _differs(self, written: pa.Field, wanted: pa.Field) -> bool:
        return bool(_plain(written).type != wanted.type)

    def _cast(self, column: pa.Array, field: pa.Field, file: InputFile) -> pa.Array:
        if not self._differs(pa.field(field.name, column.type), field):
            return column
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            what = f"column {field.name!r} cannot be read as {self._columns[field.name].type}: {error}"
            then = "land the column under another name, or leave it out of cast="
            raise Refused(Finding(what, file.path, then)) from error

    def _open_as_planned(self, file: InputFile) -> pa.NativeFile:
        try:
            with reaching("the file cannot be opened", file.path, self._restore):
                handle = self._files.open_input_file("/".join(split(file.path)))
        except FileNotFoundError as error:
            raise Refused(gone(file, self._restore)) from error
        if finding := changed(file, *version(handle), self._restore):
            raise Refused(finding)
        return handle

    def _row_groups(self, file: pq.ParquetFile, pinned: InputFile, planned: PlannedPartition) -> list[int]:
        """The row groups that may hold planned offsets."""
        groups = range(file.metadata.num_row_groups)
        if planned.start <= pinned.start and pinned.end <= planned.end:
            return list(groups)
        return [group for group in groups if self._may_hold(file.metadata.row_group(group), planned)]

    def _may_hold(self, group: pq.RowGroupMetaData, planned: PlannedPartition) -> bool:
        columns = (group.column(number) for number in range(group.num_columns))
        statistics = next(column.statistics for column in columns if column.path_in_schema == self._declared.offset)
        if statistics is None or not statistics.has_min_max:
            return True
        return bool(statistics.min < planned.end and statistics.max >= planned.start)


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)
