"""Bounds of the columns of result files: the least and greatest value, and how many are null.

Readers leave files out by them. So a value is left out that a table's log cannot say, or not as each reader takes it.

Source: Delta's protocol, "Per-file Statistics".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partitioning.model.private import is_private

# As Delta's own writers: of so many columns, and so much of a text.
_COLUMNS, _CUT = 32, 32
_BEGIN, _SURROGATES = datetime(1970, 1, 1), (0xD800, 0xE000)  # noqa: DTZ001  also of times without a time zone
_MILLISECOND, _LAST = timedelta(milliseconds=1), 0x10FFFF


@dataclass(slots=True)
class Floats:
    """What is known of a column of floating-point numbers."""

    nulls: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    has_nan: bool = False

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(values)).as_py())
        found = pc.min_max(values).as_py()
        if found["min"] is not None:
            self.least, self.greatest = min(self.least, found["min"]), max(self.greatest, found["max"])

    @property
    def bounds(self) -> Sequence[float | None]:
        """None without a value, and with what each engine sorts by its own rule, or JSON does not have."""
        if self.has_nan or not math.isfinite(self.least) or not math.isfinite(self.greatest):
            return None, None
        # Some engines sort one zero before the other.
        return self.least or -0.0, self.greatest or 0.0


class RowsFile:
    """Writes rows to a Parquet file, and finds what there is of its columns of `floats`.

    The footer says nothing of these. It would not say that there is NaN, by which engines that sort it behind all
    numbers, as Spark and DuckDB do, leave rows out.
    """

    def __init__(self, sink: Any, schema: pa.Schema, floats: dict[str, Floats]) -> None:
        self._floats = floats
        floats |= {field.name: Floats() for field in schema if pa.types.is_floating(field.type)}
        told: bool | list[str] = True
        if any(kind in str(each) for each in schema.types for kind in ("float", "double")):
            told = [each.name for each in schema if not pa.types.is_nested(each.type) and each.name not in floats]
        self._writer = pq.ParquetWriter(
            sink, schema, compression="zstd", write_page_checksum=True, write_statistics=told
        )

    def write(self, rows: pa.RecordBatch | pa.Table) -> int:
        """Returns how many rows these are."""
        for name, column in self._floats.items():
            column.add(rows[name])
        self._writer.write(rows)
        return len(rows)

    def __enter__(self) -> RowsFile:
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._writer.close()


def bounds_in(footer: pq.FileMetaData, floats: Mapping[str, Floats], private: Collection[str] = ()) -> str:
    """Those of a file's first columns that are not nested, as its table's log has them. No value of `private` ones
    is said.

    >>> rows = pa.table({"text": ["b" * 40, "a"], "at": pa.array([-1_500, None], pa.timestamp("us"))})
    >>> pq.write_table(rows, file := pa.BufferOutputStream())
    >>> said = msgspec.json.decode(bounds_in(pq.read_metadata(pa.BufferReader(file.getvalue())), {}))
    >>> said["maxValues"] == {"text": "b" * 31 + "c", "at": "1969-12-31T23:59:59.999"}
    True
    >>> said["minValues"], said["nullCount"]
    ({'text': 'a', 'at': '1969-12-31T23:59:59.998'}, {'text': 0, 'at': 1})
    """
    kinds = {field.name: field.type for field in footer.schema.to_arrow_schema() if not pa.types.is_nested(field.type)}
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        if column.path not in kinds or column.max_definition_level > 1 or len(nulls) == _COLUMNS:
            continue
        bounds: Sequence[Any] = (None, None)
        found = [group.column(number).statistics for group in groups]
        if known := floats.get(column.path):
            nulls[column.path], bounds = known.nulls, known.bounds
        elif all(each and each.has_null_count for each in found):
            nulls[column.path] = sum(each.null_count for each in found)
            filled = [each for each in found if each.num_values]
            if filled and all(each.has_min_max for each in filled):
                bounds = _bounds(kinds[column.path], [(each.min_raw, each.max_raw) for each in filled])
        for said, bound in zip((least, greatest), bounds, strict=True):
            if bound is not None and not is_private(column.path, private):
                said[column.path] = bound
    return msgspec.json.encode({"minValues": least, "maxValues": greatest, "nullCount": nulls}).decode()


def with_figures(said: str | None, **figures: int) -> str:
    """What a log says of a file, with these figures. All else stays, digit by digit.

    >>> with_figures('{"maxValues":{"paid":1.50}}', numRecords=3)
    '{"maxValues":{"paid":1.50},"numRecords":3}'
    """
    held = msgspec.json.decode(said or "{}", type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**held, **figures}).decode()


def _bounds(kind: pa.DataType, found: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
    """A value that none of a column is below, and one that none is above. None where a log has none for these."""
    types = pa.types
    if types.is_decimal(kind):
        low, high = ([int.from_bytes(each, "big", signed=True) for each in side] for side in zip(*found, strict=True))
        return [msgspec.Raw(_decimal(each, kind.scale).encode()) for each in (min(low), max(high))]
    least, greatest = min(low for low, _ in found), max(high for _, high in found)
    if types.is_integer(kind):
        return least, greatest
    try:
        if types.is_string(kind):
            return least.decode()[:_CUT], _cut_above(greatest.decode())
        if types.is_date32(kind):
            return [(date(1970, 1, 1) + timedelta(days=each)).isoformat() for each in (least, greatest)]
        if types.is_timestamp(kind):
            zone, milliseconds = "Z" if kind.tz else "", (least // 1000, -(-greatest // 1000))
            times = (_BEGIN + each * _MILLISECOND for each in milliseconds)
            return [each.isoformat(timespec="milliseconds") + zone for each in times]
    except (OverflowError, UnicodeDecodeError):
        # A time that Python does not know, such as infinity, or bytes that are no text.
        pass
    return None, None


def _decimal(unscaled: int, scale: int) -> str:
    digits = f"{abs(unscaled):0{scale + 1}}"
    whole, part = (digits[:-scale], f".{digits[-scale:]}") if scale else (digits, "")
    return f"{'-' if unscaled < 0 else ''}{whole}{part}"


def _cut_above(text: str) -> str | None:
    """A text of a bounded length that no text with this beginning is above, also one of other characters behind it.

    >>> _cut_above("a" * 31 + "\\ud7ff" + "b") == "a" * 31 + "\\ue000"
    True
    >>> _cut_above("\\U0010ffff" * 33)
    """
    if len(text) <= _CUT:
        return text
    for end in range(_CUT - 1, -1, -1):
        after = ord(text[end]) + 1
        if after <= _LAST:
            return text[:end] + chr(_SURROGATES[1] if after == _SURROGATES[0] else after)
    return None
