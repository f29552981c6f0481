"""Landed keys: where files have a record's key as its bytes, its columns are read from these, as in a broker.
Composite keys: the column with the key, which readers make of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.databases import connect_to_ask
from coset.sources.file_columns import arrow_schema
from coset.sources.kafka.keys import Wrong, key_columns_of, keys_of, read_of_key
from coset.sources.reader import WHY, Batch, Reader, without_values
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


def landed_columns(stream: Stream, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that files have, of those of records."""
    read = read_of_key(stream) if stream.key_bytes else ()
    return tuple(column for column in without_made(stream, columns) if column.name not in read)


def with_keys(stream: Stream, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of files and, before them, those that are read from the bytes of keys: these hide others of their
    names."""
    read = key_columns_of(stream) if columns and stream.key_bytes else ()
    return (*read, *landed_columns(stream, columns)) if read else tuple(columns)


class LandedKeys:
    """Reads a stream whose files have the bytes of keys. Raises as its reader, and Refused at the first record whose
    key is not as declared, if such are not set aside."""

    def __init__(self, reader: Reader, ordered: OrderedStream) -> None:
        self._reader = reader
        self._stream = ordered.declared
        self._keys = arrow_schema(key_columns_of(ordered.declared))
        self._landed = [column.name for column in landed_columns(ordered.declared, ordered.columns)]

    @property
    def empty(self) -> bool:
        return self._reader.empty

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        landed = self._reader.schema([name for name in columns if name not in self._keys.names])
        return pa.schema(
            [self._keys.field(name) if name in self._keys.names else landed.field(name) for name in columns]
        )

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        stream, key_bytes = self._stream, str(self._stream.key_bytes)
        landed = [name for name in columns if name not in self._keys.names]
        # A record that is set aside is told with all of its columns.
        wanted = self._landed if stream.sets_aside else [*landed, key_bytes, stream.offset]
        for batch in self._reader.batches(wanted):
            yield replace(batch, records=self._with_keys(batch))

    def _with_keys(self, batch: Batch) -> pa.RecordBatch:
        stream, records = self._stream, batch.records
        written = _bytes_of(records.column(str(stream.key_bytes)))
        has_why = WHY.name in records.schema.names
        aside = {row for row, why in enumerate(records.column(WHY.name).to_pylist()) if why} if has_why else set[int]()
        try:
            found = keys_of(written, stream, aside)
        except Wrong as wrong:
            if not stream.sets_aside:
                offset = records.column(stream.offset)[wrong.number].as_py()
                what = f"{stream.name}: offset {offset:,}: {wrong.what}"
                then = wrong.then or "correct the declaration of the key, or land the file again"
                raise Refused.of(Kind.KEY, what, batch.where, then, stream=stream.name, offset=offset) from None
            wrongs = {
                number: why
                for number in range(len(written))
                if number not in aside and (why := self._why(written[number]))
            }
            records = without_values(records, wrongs, stream.offset)
            usable = [None if number in wrongs else key for number, key in enumerate(written)]
            found = keys_of(usable, stream, aside | wrongs.keys())
        for field in self._keys:
            records = records.append_column(field, found[field.name])
        return records

    def _why(self, key: bytes | None) -> str:
        """Why a key cannot be read; nothing if it can."""
        try:
            keys_of([key], self._stream)
        except Wrong as wrong:
            return wrong.what
        return ""


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    """The bytes of keys; of text those of its UTF-8."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    written: list[bytes | None] = plain.cast(pa.binary()).to_pylist()
    return written
