"""Composite keys: streams whose key is made of columns, of which readers make the column with the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.databases import connect_to_ask
from coset.sources.reader import WHY, Batch, Reader
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
    """A stream with the columns that its records have."""
    return with_values(ordered, columns=without_made(ordered.declared, ordered.columns))


@contextmanager
def making_keys(columns: Sequence[str]) -> Iterator[Callable[[pa.RecordBatch | pa.Table], pa.Array]]:
    """What makes the key of each record of these columns, whose text is UTF-8; null for one that cannot be used."""
    names = [f"part{number}" for number in range(len(columns))]
    with connect_to_ask() as connection:

        def keys_of(records: pa.RecordBatch | pa.Table) -> pa.Array:
            connection.register("parts", pa.table([records.column(name) for name in columns], names))
            made: Any = connection.sql(f"SELECT {canonical(names)} AS key FROM parts").to_arrow_table()
            keys = made["key"].combine_chunks() if len(records) else pa.array([], pa.string())
            if WHY.name not in records.schema.names:
                return keys
            return pc.if_else(records.column(WHY.name).is_valid(), pa.scalar(None, keys.type), keys)

        yield keys_of


class CompositeKeys:
    """Reads a stream whose key is made of columns. Raises Refused as its reader does."""

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
        key = pa.field(self._stream.key, pa.string())
        with making_keys(self._parts) as keys_of:
            for batch in self._reader.batches([*landed, *self._parts, self._stream.offset]):
                yield replace(batch, records=batch.records.append_column(key, keys_of(batch.records)))
