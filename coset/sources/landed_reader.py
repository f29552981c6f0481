"""Landed files as a task reads them: the planned ones, part by part, unchanged since planning.

The audit checks that none changed while it was read, by one listing for all tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import arrow_schema, cast_exactly, columns_of, has_limits
from coset.sources.files import Files
from coset.sources.formats.landed_file import Counted, LandedFile, Unreadable
from coset.sources.formats.opening import open_landed
from coset.sources.iceberg.data_files import DataFile
from coset.sources.pinned import open_pinned, restore
from coset.sources.plain_arrays import not_utf8, plain_type, with_leaves
from coset.sources.reader import RAW, WHY, Batch, uncastable, without_values
from coset.sources.s3 import reaching
from partitioning.commands import Replan, Then
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.order import OrderedStream
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import Column, InputFile
from partitioning.model.task_engine import USUAL, TaskMemory

_UNREAD = "the file cannot be read"
# A file of at most so many bytes is fetched as a whole when it is opened, as long as all of a task are together no more
# than is read at once.
_SMALL = 1 << 20
# One of at most so many is fetched as a whole when it is read: requests for its parts take longer.
_AT_ONCE = 4 << 20
# What a time may be read as, if not as the time that the files of a stream have in common.
_TIMES = ("TIMESTAMP_NS", "TIMESTAMP", "BIGINT", "VARCHAR")


@dataclass(frozen=True, slots=True)
class _Pinned:
    """An open file, as it was planned."""

    file: InputFile
    handle: pa.NativeFile
    landed: LandedFile
    keys: pa.NativeFile | None


class LandedReader:
    """Reads the landed files of a stream that an order names. All text is UTF-8, unless it is read to be `shown`.

    Raises Refused, with all findings, if a file changed since planning, or holds a record that cannot be used and is
    not to be set aside; and Unreachable if the store does not answer.
    """

    def __init__(
        self, ordered: OrderedStream, files: Files, pipeline: str, memory: TaskMemory = USUAL, *, shown: bool = False
    ) -> None:
        self._memory = memory
        self._declared = ordered.declared
        self._ids = ordered.ids
        self._columns = {column.name: column for column in ordered.columns}
        self._files = files
        self._shown = shown
        self._anew = Replan(pipeline, repaired=True)
        self._restore = restore(self._anew)
        self._room = memory.part
        self._pinned = self._open(ordered.partitions)

    @property
    def empty(self) -> bool:
        return not any(pinned for _, pinned in self._pinned)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The planned types, as in the first file where it has the column, but for what is the same in SQL."""
        written = self._first_schema
        landed = {column.name for column in columns_of(written).columns if self._columns.get(column.name) == column}
        return pa.schema(
            [
                pa.field(name, plain_type(written.field(name).type)) if name in landed else self._planned.field(name)
                for name in columns
            ]
        )

    @cached_property
    def _planned(self) -> pa.Schema:
        """The planned types of all columns. Only Parquet has intervals, and those as durations."""
        planned = arrow_schema(tuple(self._columns.values()))
        fields = [field.with_type(with_leaves(field.type, _as_durations)) for field in planned]
        return pa.schema(fields)

    @cached_property
    def _first_schema(self) -> pa.Schema:
        first = next(file for _, pinned in self._pinned for file in pinned)
        with self._reading(first.file):
            return first.landed.schema

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        wanted = list(dict.fromkeys(columns))
        types = pa.schema([]) if self.empty else self.schema(wanted)
        for planned, pinned in self._pinned:
            for opened in pinned:
                for landed in self._records(planned, opened, self._looked_at(opened, wanted)):
                    file = opened.file
                    records = self._texts(self._evolved(landed, types, file), file)
                    yield Batch(planned.partition, file.start, file.end, file.path, records)

    def _open(self, partitions: Sequence[PlannedPartition]) -> list[tuple[PlannedPartition, list[_Pinned]]]:
        findings: list[Finding] = []
        opened: list[tuple[PlannedPartition, list[_Pinned]]] = []
        for planned in partitions:
            pinned: list[_Pinned] = []
            for file in planned.files:
                with noting(findings):
                    handle, keys = self._open_as_planned(file), file.beside and self._open_as_planned(file.beside)
                    landed = self._landed(file, handle, keys)
                    pinned.append(_Pinned(file, handle, landed, keys))
            opened.append((planned, pinned))
        refuse(findings)
        return opened

    def _records(self, planned: PlannedPartition, pinned: _Pinned, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        file, offset = pinned.file, self._declared.offset
        with self._reading(file):
            if file.first == file.start:
                yield from self._fetched(pinned).batches(columns, planned.start, planned.end)
                return
            # Earlier offsets are another file's.
            wanted = list(dict.fromkeys([*columns, offset]))
            for records in self._fetched(pinned).batches(wanted, max(planned.start, file.start), planned.end):
                before = pc.fill_null(pc.less(records.column(offset), file.start), False)
                yield records.filter(pc.invert(before))

    def _fetched(self, pinned: _Pinned) -> LandedFile:
        """The file, with its content if one request is to bring it."""
        file, handle = pinned.file, pinned.handle
        if isinstance(handle, pa.BufferReader) or file.size > min(_AT_ONCE, self._memory.part):
            return pinned.landed
        whole = pa.BufferReader(handle.read_at(file.size, 0))
        return self._landed(file, whole, pinned.keys)

    def _landed(self, file: InputFile, source: pa.NativeFile, keys: pa.NativeFile | None) -> LandedFile:
        if not self._ids:
            return open_landed(self._declared, source, file.first, self._memory, keys)
        gone = file.gone if self._declared.tells_deletes else None
        data = DataFile(source, self._ids, self._memory, file.rows, gone=gone)
        return Counted(data, self._declared.offset, file.first)

    @contextmanager
    def _reading(self, file: InputFile) -> Iterator[None]:
        with reaching(_UNREAD, file.path, self._restore):
            try:
                yield
            except Unreadable as error:
                then = (f"{error.then}, and ", self._anew)
                what = f"{_UNREAD}: {error}"
                raise Refused.of(Kind.FILE_UNREADABLE, what, file.path, then, file=file.path) from error

    def _evolved(self, records: pa.RecordBatch, types: pa.Schema, file: InputFile) -> pa.RecordBatch:
        """The records with all requested columns in the planned types, null where the file lacks one."""
        if records.schema.names == types.names and not any(map(self._differs, records.schema, types)):
            return records
        there = set(records.schema.names)
        if self._declared.sets_aside:
            records = self._castable(records)
        columns = [
            self._cast(records.column(field.name), field, file)
            if field.name in there
            else pa.nulls(len(records), field.type)
            for field in types
        ]
        beside = [field.name for field in (WHY, RAW) if field.name in records.schema.names]
        columns += [records.column(name) for name in beside]
        return pa.RecordBatch.from_arrays(columns, names=[*types.names, *beside])

    def _texts(self, records: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
        """The records, of which those with text that is not UTF-8 have nulls, and say why."""
        why: dict[int, str] = {}
        for name in () if self._shown else records.schema.names:
            for row in not_utf8(records.column(name)):
                if not self._declared.sets_aside:
                    raise Refused(self._no_text(name, records.column(self._declared.offset)[row].as_py(), file))
                why.setdefault(row, f"column {name!r} is not UTF-8")
        # Their bytes are told of all columns or not at all.
        whole = self._columns.keys() <= set(records.schema.names)
        return without_values(records, why, self._declared.offset, told=whole) if why else records

    def _no_text(self, name: str, offset: int, file: InputFile) -> Finding:
        if name == self._declared.key:
            then = "land it with a column of bytes and declare key_format='bytes'"
        elif name in key_parts(self._declared.key) or self._columns[name].type != "VARCHAR":
            then = "land it as UTF-8, or declare bad_records='set aside'"
        else:
            as_bytes = {name: "BLOB"}
            then = f"declare cast={as_bytes!r} to read it as bytes, or bad_records='set aside'"
        kind = Kind.KEY if name in key_columns(self._declared.key) else Kind.RECORD
        what = f"column {name!r} at offset {offset:,} is not UTF-8"
        return Finding.of(kind, what, file.path, (f"{then}; then ", self._anew), column=name, offset=offset)

    def _looked_at(self, pinned: _Pinned, wanted: Sequence[str]) -> Sequence[str]:
        """The columns to read of a file: all, if a record may have to be set aside for a value of any of them."""
        if not self._declared.sets_aside or not self._casts(pinned):
            return wanted
        return list(dict.fromkeys([*wanted, *self._columns]))

    def _casts(self, pinned: _Pinned) -> bool:
        """Whether values of a file are cast to the planned types."""
        with self._reading(pinned.file):
            written = pinned.landed.schema
        there = (field for field in self._planned if field.name in written.names)
        return any(self._differs(written.field(field.name), field) for field in there)

    def _castable(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records, of which those with a value that cannot be cast have nulls, and say why."""
        why: dict[int, str] = {}
        for field in self._planned:
            if field.name in records.schema.names and self._differs(records.schema.field(field.name), field):
                for row, said in uncastable(records.column(field.name), field.type):
                    why.setdefault(
                        row, f"column {field.name!r} cannot be read as {self._columns[field.name].type}: {said}"
                    )
        return without_values(records, why, self._declared.offset) if why else records

    def _differs(self, written: pa.Field, wanted: pa.Field) -> bool:
        kind = written.type.value_type if pa.types.is_dictionary(written.type) else written.type
        return bool(kind != wanted.type) or has_limits(kind)

    def _cast(self, column: pa.Array, field: pa.Field, file: InputFile) -> pa.Array:
        if not self._differs(pa.field(field.name, column.type), field):
            return column
        try:
            return cast_exactly(column, field.type)
        except pa.ArrowException as error:
            kind = self._columns[field.name].type
            what = f"column {field.name!r} cannot be read as {kind}: {error}"
            then: Then = "land the column under another name, or leave it out of cast="
            if field.name not in self._declared.cast:
                then = self._then(field.name, column)
            raise Refused.of(Kind.RECORD, what, file.path, then, field=field.name, type=kind) from error

    def _then(self, name: str, column: pa.Array) -> Then:
        """What to do about a column of times that cannot be read as planned, although nobody declared a cast."""
        for kind in _TIMES:
            with suppress(pa.ArrowException):
                cast_exactly(column, arrow_schema((Column(name, kind),)).field(0).type)
                declared = {name: kind}
                return f"declare cast={declared!r}, which reads it, and ", self._anew
        return "land the column under another name"

    def _open_as_planned(self, file: InputFile) -> pa.NativeFile:
        if (whole := self._files.whole(file.path, file.size, file.etag, min(_SMALL, self._room))) is not None:
            self._room -= file.size
            return whole
        return open_pinned(self._files, file, self._restore)


def _as_durations(kind: pa.DataType) -> pa.DataType:
    return pa.duration("us") if kind == pa.month_day_nano_interval() else kind
