"""Landed keys: where files have a record's key as its bytes, its columns are read from these, as in a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from coset.sources.composite_keys import without_made
from coset.sources.file_columns import arrow_schema
from coset.sources.kafka.keys import key_columns_of, keys_of, read_of_key
from coset.sources.kafka.wrong import Wrong
from coset.sources.reader import WHY, Batch, Reader
from coset.sources.unusable import without_values
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.order import OrderedStream
from partitioning.model.streams import Column, Stream


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
