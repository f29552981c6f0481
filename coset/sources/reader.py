"""Readers: the port by which a task reads an input, whatever its source. Records that cannot be used, as readers hand
them on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.file_columns import cast_exactly
from coset.sources.plain_arrays import values_of

T = TypeVar("T")

# Columns of records that cannot be used, in batches of streams that set them aside: why, and the bytes as they were
# written. Both are null for other records. In other columns but the offset, a record that cannot be used has nulls.
WHY = pa.field("@why", pa.string())
RAW = pa.field("@raw", pa.binary())

# To work on fewer records takes less time than to begin a thread that reads others meanwhile.
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a partition, and `where` they were read. Their offsets must be in [first, end).

    If only the reader knows how far that is, `reached` is the offset up to which all records have been returned.
    """

    partition: int
    first: int
    end: int
    where: str
    records: pa.RecordBatch
    reached: int | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: Hashable, work_out: Callable[[], T]) -> T:
        """The result of `work_out`, which is called once for all tasks that get these records."""
        if name not in self._known:
            self._known[name] = work_out()
        known: T = self._known[name]
        return known


def ahead(batches: Iterator[Batch], records: int) -> Iterator[Batch]:
    """The same batches, of so many records. Each is read while the one before is worked on; few are read at once."""
    if records < _MANY:
        yield from batches
        return
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


class Reader(Protocol):
    """Reads the partitions that an order names, in its order."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of these columns, dictionaries decoded. Call it only if there is something to read."""

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All records with these columns, once. Raises Refused if a record is no longer there as planned."""


def uncastable(column: pa.Array, kind: pa.DataType) -> Iterator[tuple[int, str]]:
    """The values that cannot be cast to a type, found by halving: their rows, and why."""
    spans = [(0, len(column))]
    while spans:
        start, count = spans.pop()
        try:
            cast_exactly(column.slice(start, count), kind)
        except pa.ArrowException as error:
            if count == 1:
                yield start, str(error)
            else:
                half = count // 2
                spans += [(start + half, count - half), (start, half)]


def without_values(
    records: pa.RecordBatch, why: Mapping[int, str], offset: str, *, told: bool = True
) -> pa.RecordBatch:
    """The records, of which those in the rows of `why` cannot be used: they keep nothing but their offset. What they
    held is `told` beside it, or not."""
    said = pa.array([why.get(row) for row in range(len(records))], WHY.type)
    rows = {row: as_json(records.slice(row, 1)) for row in why if told}
    raw = pa.array([rows.get(row) for row in range(len(records))], RAW.type)
    if WHY.name in records.schema.names:
        said = pc.coalesce(records.column(WHY.name), said)
        raw = pc.coalesce(records.column(RAW.name), raw)
    columns = {
        field.name: records.column(field.name)
        if field.name == offset
        else pc.if_else(said.is_valid(), pa.scalar(None, field.type), records.column(field.name))
        for field in records.schema
        if field.name not in {WHY.name, RAW.name}
    } | {WHY.name: said, RAW.name: raw}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def as_json(record: pa.RecordBatch) -> bytes:
    """One record that was no text, as a JSON object."""
    row = {name: _value(record.column(name)) for name in record.schema.names}
    return json.dumps({name: value for name, value in row.items() if name[0] != "@"}, default=_text).encode()


def rows_in(data: bytes) -> list[dict[str, Any]]:
    """The rows of a file of records that were set aside. Raises an error of Arrow's if it is damaged."""
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data), page_checksum_verification=True).to_pylist()
    return rows


def _value(column: pa.Array) -> object:
    """The only value; a time that Python does not know as text."""
    try:
        return values_of(column)[0]
    except (OverflowError, ValueError):
        return column.cast(pa.string())[0].as_py()


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
