"""Records that cannot be used, as readers hand them on: with nulls, why, and the bytes as they were written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.exact_casts import cast_exactly
from coset.sources.reader import RAW, WHY
from coset.sources.utf8 import values_of


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
