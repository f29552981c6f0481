"""The Arrow schema of a result table's data files, and the keys of rows that go as new ones are written beside them.
Footers of its files, and bounds of columns in them.

Bounds of the columns of result files: the least and greatest value, and how many are null. Readers leave files out by
them. So a value is left out that a table's log cannot say, or not as each reader takes it. Source: Delta's protocol,
"Per-file Statistics".
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from hashlib import sha256
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.file_columns import arrow_schema
from partitioning.documents.store import Store
from partitioning.model.composite_key import key_columns
from partitioning.model.plan import PlannedWrite
from partitioning.model.private import is_private
from partitioning.model.receipt import MODULUS, Keyed
from partitioning.model.root_names import TABLES

# The partition column of an upserted table: the residue of a row's key.
RESIDUE = "_residue"
_LINEAGE = (pa.field("_batch", pa.int64()), pa.field("_task", pa.int32()))
# The hash of a null.
_NULL = np.uint64(0xD1B54A32D192ED03)
# A key of several columns is a number in this base; hashes are added up by halves, which do not overflow.
_SPREAD, _HALF, _LOW = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(2**32 - 1)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.timestamp("ms"): pa.timestamp("us"),
}


def folder(store: Store, table: str) -> str:
    """The URI of a result table. The paths of its data files are relative to it."""
    return store.uri(f"{TABLES}{table}")


@cache
def table_schema(write: PlannedWrite) -> pa.Schema:
    """The schema of a result table's data files: its columns, then `_batch` and `_task` if it has lineage.

    Delta has no unsigned integers, so they get a wider type. Timestamps have microseconds; those with a time zone are
    in UTC.
    """
    return pa.schema([*wider(arrow_schema(write.columns)), *(_LINEAGE if write.declared.lineage else ())])


def columns_of(write: PlannedWrite) -> pa.Schema:
    """The columns of a result table: those of its data files, and `_residue` if it is upserted."""
    schema = table_schema(write)
    return schema.append(pa.field(RESIDUE, pa.int32())) if write.declared.mode.by_key else schema


def wider(schema: pa.Schema) -> pa.Schema:
    """The same columns, in types that Spark and Delta know.

    >>> wider(pa.schema([("n", pa.uint32()), ("at", pa.timestamp("ms"))])).types
    [DataType(int64), TimestampType(timestamp[us])]
    """
    return pa.schema([field.with_type(_WIDER.get(field.type, field.type)) for field in schema])


def key_schema(write: PlannedWrite) -> pa.Schema:
    """The columns of a table's key, as its files have them."""
    every = columns_of(write)
    return pa.schema([every.field(name) for name in key_columns(write.declared.key)])


def keyed(write: PlannedWrite, rows: Sequence[pa.RecordBatch]) -> Keyed:
    """How many rows these are, and the digest of their keys, which does not depend on their order or their types before
    the table's."""
    schema, digest = key_schema(write), 0
    for batch in rows:
        hashed = np.zeros(len(batch), np.uint64)
        for column in batch.select(schema.names).cast(schema).columns:
            hashed = _mixed(hashed * _SPREAD + _hashed(column))
        digest += (int((hashed >> _HALF).sum()) << 32) + int((hashed & _LOW).sum())
    return Keyed(sum(map(len, rows)), f"{digest % MODULUS:016x}")


def _hashed(values: pa.Array) -> np.ndarray:
    from pandas.util import hash_array  # noqa: PLC0415  who asks for rows does not need it

    texts = values if pa.types.is_binary(values.type) else values.cast(pa.string())
    hashed: np.ndarray = hash_array(texts.fill_null("").to_numpy(zero_copy_only=False), categorize=False)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)


def _mixed(hashed: np.ndarray) -> np.ndarray:
    """Without it keys that have their columns' values in another pairing would add up alike (splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(hashed ^ (hashed >> np.uint64(31)))


# A file ends with the length of its footer and four letters.
_LENGTH = 8


def footer_in(end: bytes) -> pq.FileMetaData | None:
    """The footer of a Parquet file, from the `end` of the file. None if that does not have all of it."""
    if len(end) < _LENGTH or int.from_bytes(end[-_LENGTH:-4], "little") + _LENGTH > len(end):
        return None
    return pq.read_metadata(io.BytesIO(end))


def seal(size: int, etag: str, digest: str, rows: int, schema: pa.Schema) -> str:
    """What stands for a stored file and its footer: another file, another number of rows or other columns have another
    seal.

    >>> views = pa.schema([("views", pa.int64())])
    >>> seal(9, "e1", "sha256:0", 4, views) == seal(9, "e1", "sha256:0", 4, views)
    True
    >>> seal(9, "e1", "sha256:0", 4, views) == seal(9, "e1", "sha256:0", 5, views)
    False
    """
    columns = [f"{field.name} {field.type} {field.nullable}" for field in schema]
    return sha256("\n".join((f"{size} {etag} {digest} {rows}", *columns)).encode()).hexdigest()[:32]


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
