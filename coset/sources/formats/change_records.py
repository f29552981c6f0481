"""Debezium's change events in files that have types, Avro and Parquet: the row that each leaves, as of JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
from msgspec import UNSET

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.change_rows import (
    NO_CHANGE,
    NO_CHANGE_THEN,
    NOT_UNWRAPPED,
    NOT_UNWRAPPED_THEN,
    ChangeRows,
    check_said,
)
from coset.sources.formats.changes_seen import fields_of_avro
from coset.sources.formats.json_lines import declared_schema
from coset.sources.formats.landed_file import LAND_AGAIN, FileFacts, Unreadable, UnusableRecord
from coset.sources.reader import RAW, WHY, as_json
from partitioning.model.composite_key import key_columns
from partitioning.model.streams import ChangeForm, Stream

_DECLARE = "declare the column as it is written"


class TypedEvents(Protocol):
    """Events with the types that their schema has, and that of Avro if one is known."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def avro_schema(self) -> Any: ...

    def facts_as(self, columns: FileColumns) -> FileFacts: ...

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]: ...


class ChangeRecords:
    """A file of change events as the rows that they leave, with the declared columns. One that the file does not have
    is null. Where records are set aside, all columns count, whichever are asked for, so that all readers agree."""

    def __init__(self, events: TypedEvents, stream: Stream) -> None:
        self._events = events
        self._stream = stream
        self._rows = ChangeRows(stream)

    @cached_property
    def schema(self) -> pa.Schema:
        offset, written = self._stream.offset, self._events.schema
        there = [field for field in declared_schema(self._stream) if field.name != offset]
        return pa.schema([*there, written.field(offset)] if offset in written.names else there)

    def facts(self) -> FileFacts:
        """What the file says without a look at its events."""
        return self._events.facts_as(columns_of(self.schema))

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        names = dict.fromkeys(name for name in columns if name in self.schema.names)
        aside = self._stream.sets_aside
        wanted = self.schema if aside else pa.schema([self.schema.field(name) for name in names])
        asked = [*names, *([WHY.name, RAW.name] if aside else [])]
        for events in self._events.batches(self._parts(wanted), start, end):
            runs = [each.select(asked) for each in self._runs(events, wanted)]
            yield from pa.Table.from_batches(runs).combine_chunks().to_batches() if len(runs) > 1 else runs

    def _parts(self, wanted: pa.Schema) -> Sequence[str]:
        """The columns of the file that are needed. Raises Unreadable if they are those of no change events, or if its
        schema says of a column that it is not as declared."""
        written, form = self._events.schema, self._stream.changes
        offset = [self._stream.offset] if self._stream.offset in written.names else []
        if wanted.names == offset:
            return offset
        if form is ChangeForm.ENVELOPE:
            parts, row = ["op", "before", "after"], written
            if not {*parts} <= {*written.names} or not all(
                pa.types.is_struct(written.field(n).type) for n in parts[1:]
            ):
                raise Unreadable(f"its records are {NO_CHANGE}", NO_CHANGE_THEN)
            row = pa.schema(list(written.field("after").type))
        else:
            row = written
            if "__deleted" not in written.names:
                raise Unreadable(NOT_UNWRAPPED, NOT_UNWRAPPED_THEN)
            parts = ["__deleted", *(name for name in wanted.names if name in row.names and name not in offset)]
        for name in key_columns(self._stream.key):
            # Who only looks declares none.
            if name and name not in row.names:
                there = ", ".join(each for each in row.names if each not in {"__deleted", *offset})
                raise Unreadable(f"there is no column {name!r} of the key", f"name it in key=; there are {there}")
        said = self._events.avro_schema
        try:
            check_said(fields_of_avro(said, form) if said and form is not UNSET else {}, wanted)
        except UnusableRecord as error:
            raise Unreadable(str(error), error.then) from error
        return [*parts, *offset]

    def _runs(self, events: pa.RecordBatch, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of events, of which one that is no change of a row says why. Raises Unreadable if such are not set
        aside."""
        try:
            rows = self._read(events, wanted)
        except (pa.ArrowException, ValueError) as error:
            half = len(events) // 2
            if half:
                yield from self._runs(events.slice(0, half), wanted)
                yield from self._runs(events.slice(half), wanted)
                return
            found = self._wrong(events, wanted, error)
            if not self._stream.sets_aside:
                raise found from error
            at = self._stream.offset
            known = {at: events.column(at)[0].as_py()} if at in events.schema.names else {}
            values = {**known, WHY.name: str(found), RAW.name: as_json(events)}
            yield pa.RecordBatch.from_pylist([values], pa.schema([*wanted, WHY, RAW]))
        else:
            if self._stream.sets_aside:
                for field in (WHY, RAW):
                    rows = rows.append_column(field, pa.nulls(len(rows), field.type))
            yield rows

    def _read(self, events: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        return events if wanted.names == events.schema.names else self._rows.rows(events, wanted)

    def _wrong(self, event: pa.RecordBatch, wanted: pa.Schema, error: Exception) -> Unreadable:
        """What is wrong with one event."""
        at = self._stream.offset
        where = f"offset {event.column(at)[0].as_py():,}: " if at in event.schema.names else ""
        if isinstance(error, UnusableRecord):
            return Unreadable(f"{where}{error}", error.then)
        for field in wanted:
            try:
                self._read(event, pa.schema([field]))
            except (pa.ArrowException, ValueError) as said:
                kind = columns_of(pa.schema([field])).columns[0].type
                return Unreadable(f"{where}column {field.name!r} is not {kind}: {said}", _DECLARE)
        return Unreadable(f"{where}{error}", LAND_AGAIN)
