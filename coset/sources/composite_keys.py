"""Composite keys: streams whose key has several columns, of which readers make the column with the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.reader import WHY, Batch, Reader
from coset.sources.unusable import without_values
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import canonical, key_parts
from partitioning.model.order import OrderedStream
from partitioning.model.streams import Column, Stream
from partitioning.values import replace as with_values


def without_made(stream: Stream, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that records have, without a key that is made of others."""
    made = stream.key if key_parts(stream.key) else None
    return tuple(column for column in columns if column.name != made)


def with_made(stream: Stream, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of records and, before them, a key that is made of others."""
    made = (Column(stream.key, "VARCHAR"),) if columns and key_parts(stream.key) else ()
    return (*made, *columns)


def as_landed(ordered: OrderedStream) -> OrderedStream:
    """A stream with the columns that its files have."""
    return with_values(ordered, columns=without_made(ordered.declared, ordered.columns))


def keys_of(records: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> pa.Array:
    """The key of each record, from these columns; null for one that cannot be used. A text that is not UTF-8 must not
    be in them."""
    names = [f"part{number}" for number in range(len(columns))]
    parts = pa.table([records.column(name) for name in columns], names)
    with duckdb.connect(config={"threads": 1}) as connection:
        # Times with a time zone are written in it.
        connection.execute("SET TimeZone = 'UTC'").register("parts", parts)
        made: Any = connection.execute(f"SELECT {canonical(names)} AS key FROM parts").to_arrow_table()
    keys = made["key"].combine_chunks() if len(parts) else pa.array([], pa.string())
    if WHY.name not in records.schema.names:
        return keys
    return pc.if_else(records.column(WHY.name).is_valid(), pa.scalar(None, keys.type), keys)


class CompositeKeys:
    """Reads a stream of landed files whose key has several columns.

    Raises Refused as its reader does, and if a text of a key is not UTF-8, unless such records are set aside.
    """

    def __init__(self, reader: Reader, stream: Stream) -> None:
        self._reader = reader
        self._stream = stream
        self._parts = key_parts(stream.key)

    @property
    def empty(self) -> bool:
        return self._reader.empty

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        landed = self._reader.schema([name for name in columns if name != self._stream.key])
        key = pa.field(self._stream.key, pa.string())
        return pa.schema([key if name == key.name else landed.field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        landed = [name for name in columns if name != self._stream.key]
        for batch in self._reader.batches([*landed, *self._parts, self._stream.offset]):
            yield replace(batch, records=self._with_key(batch))

    def _with_key(self, batch: Batch) -> pa.RecordBatch:
        records = batch.records
        if wrong := self._not_text(records):
            if not self._stream.sets_aside:
                row = min(wrong)
                what = f"the key at offset {records.column(self._stream.offset)[row]}: {wrong[row]}"
                then = 'land these records again, or declare bad_records="set aside"'
                raise Refused.of(Kind.KEY, what, batch.where, then, row=row)
            records = without_values(records, wrong, self._stream.offset)
        key = pa.field(self._stream.key, pa.string())
        return records.append_column(key, keys_of(records, self._parts))

    def _not_text(self, records: pa.RecordBatch) -> dict[int, str]:
        """The rows in which a part of the key is not UTF-8, and what is said of it."""
        wrong: dict[int, str] = {}
        for name in self._parts:
            column = records.column(name)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                for row in range(len(column)):
                    try:
                        column.slice(row, 1).validate(full=True)
                    except pa.ArrowInvalid:
                        wrong.setdefault(row, f"column {name!r} is not UTF-8")
        return wrong
