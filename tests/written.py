"""Landed files in every format, as real writers make them: PyArrow's Parquet, msgspec's JSON, fastavro's Avro."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from partitioning.model.streams import Format, Layout

# The columns that rows may have, as each format says it.
COLUMNS: Mapping[str, tuple[str, pa.DataType, Any]] = {
    "member": ("VARCHAR", pa.string(), "string"),
    "n": ("BIGINT", pa.int64(), "long"),
    "small": ("INTEGER", pa.int32(), "int"),
    "price": (
        "DECIMAL(30,4)",
        pa.decimal128(30, 4),
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4},
    ),
    "score": ("DOUBLE", pa.float64(), "double"),
    "good": ("BOOLEAN", pa.bool_(), "boolean"),
    "day": ("DATE", pa.date32(), {"type": "int", "logicalType": "date"}),
    "at": ("TIMESTAMPTZ", pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-micros"}),
    "raw": ("BLOB", pa.binary(), "bytes"),
    "tags": ("VARCHAR[]", pa.list_(pa.string()), {"type": "array", "items": ["null", "string"]}),
    "place": (
        "STRUCT(x INTEGER, y VARCHAR)",
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
        },
    ),
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Writer:
    """How files are written: in a format, by a codec, with an ending."""

    format: Format
    codec: str
    ending: str

    def __str__(self) -> str:
        return f"{self.format}-{self.codec}"

    @property
    def around(self) -> str:
        """The ending of the compression of the whole file, if it has one."""
        last = f".{self.ending.rpartition('.')[2]}"
        return last if last in {".gz", ".zst", ".snappy"} else ""

    @property
    def declared(self) -> dict[str, Any]:
        """What a stream of such files says of them."""
        if self.format is Format.JSON:
            return {"format": "json", "columns": {name: column[0] for name, column in COLUMNS.items()}}
        return {"format": self.format.value} if self.format is not Format.PARQUET else {}

    def write(self, rows: Sequence[Row], first: int | None) -> bytes:
        """A file of these rows, with the offsets from `first` on if that is given."""
        numbered = [{**row, "_offset": first + n} if first is not None else dict(row) for n, row in enumerate(rows)]
        match self.format:
            case Format.PARQUET:
                return self._parquet(numbered, first is not None)
            case Format.AVRO:
                return self._avro(numbered, first is not None)
            case Format.JSON:
                return self._json(numbered)
            case Format.BYTES:
                raise AssertionError(self)

    def _parquet(self, rows: Sequence[Row], with_offset: bool) -> bytes:
        fields = [pa.field(name, kind) for name, (_, kind, _) in COLUMNS.items()]
        offset = [pa.field("_offset", pa.int64())] if with_offset else []
        sink = io.BytesIO()
        table = pa.Table.from_pylist(list(rows), schema=pa.schema([*fields, *offset]))
        pq.write_table(table, sink, compression=self.codec, row_group_size=3)
        return sink.getvalue()

    def _avro(self, rows: Sequence[Row], with_offset: bool) -> bytes:
        fields = [{"name": name, "type": ["null", kind], "default": None} for name, (_, _, kind) in COLUMNS.items()]
        if with_offset:
            fields.append({"name": "_offset", "type": "long"})
        sink = io.BytesIO()
        # Blocks of a few records.
        schema = {"type": "record", "name": "Row", "fields": fields}
        inner = "null" if self.around else self.codec
        fastavro.writer(sink, schema, rows, codec=inner, sync_interval=100)
        return self._around(sink.getvalue())

    def _json(self, rows: Sequence[Row]) -> bytes:
        encoder = msgspec.json.Encoder(decimal_format="number")
        # Nobody writes what is null in every second line.
        lines = [row if n % 2 else _without_nulls(row) for n, row in enumerate(rows)]
        if self.codec.startswith("array"):
            # As Aiven's sink writes it.
            plain = b"[\n" + b",\n".join(map(encoder.encode, lines)) + b"\n]"
        else:
            plain = b"".join(encoder.encode(line) + b"\n" for line in lines)
        return self._around(plain)

    def _around(self, plain: bytes) -> bytes:
        """The content, compressed as a whole."""
        match self.around:
            case ".gz":
                return gzip.compress(plain)
            case ".zst":
                return bytes(pa.compress(plain, "zstd", asbytes=True))
            case ".snappy":
                return snappy_of_java(plain)
            case _:
                return plain


def snappy_of_java(plain: bytes, size: int = 1 << 15) -> bytes:
    """What Java's SnappyOutputStream makes of it, in blocks of this size."""
    blocks = [pa.compress(plain[at : at + size], "snappy", asbytes=True) for at in range(0, len(plain), size)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


WRITERS = (
    Writer(Format.PARQUET, "snappy", ".snappy.parquet"),
    Writer(Format.PARQUET, "gzip", ".gz.parquet"),
    Writer(Format.PARQUET, "none", ".parquet"),
    Writer(Format.JSON, "plain", ".json"),
    Writer(Format.JSON, "gzip", ".json.gz"),
    *(Writer(Format.AVRO, codec, ".avro") for codec in ("null", "deflate", "snappy", "zstandard", "bzip2")),
    Writer(Format.JSON, "array", ".json"),
    Writer(Format.JSON, "array-zstd", ".json.zst"),
    Writer(Format.JSON, "snappy", ".jsonl.snappy"),
    Writer(Format.AVRO, "gzip", ".avro.gz"),
    Writer(Format.AVRO, "zstd", ".avro.zst"),
)


def row(number: int) -> Row:
    """One row out of many."""
    return {
        "member": f"member-{number % 7}",
        "n": 2**62 + number,
        "small": -number,
        "price": Decimal(12345678901234567890) + Decimal(number) / 10000,
        "score": number / 3,
        "good": number % 2 == 0,
        "day": (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)).date(),
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number),
        "raw": bytes([number % 256]),
        "tags": ["a", None] if number % 3 else [],
        "place": {"x": number, "y": None} if number % 5 else None,
    }


def land_rows(
    rows: Sequence[Row],
    source: str,
    writer: Writer,
    layout: Layout,
    *,
    counted: bool,
    partitions: int,
    ends: dict[int, int],
    files: int = 2,
) -> None:
    """Land rows as the files of stream `views`, each in the partition of its member; `ends` are the next offsets."""
    hours = count()
    for partition in range(partitions):
        mine = [row for row in rows if placement_hash(row["member"]) % partitions == partition]
        step = -(-len(mine) // files) or 1
        for part in (mine[start : start + step] for start in range(0, len(mine), step)):
            first = ends.get(partition, 0)
            key = file_key(writer, layout, partition, first, next(hours) % 3)
            store_at(source).put(key, writer.write(part, None if counted else first))
            ends[partition] = first + len(part)


def file_key(writer: Writer, layout: Layout, partition: int, first: int, hour: int) -> str:
    """How the sink names a file of stream `views`."""
    match layout:
        case Layout.PARTITION:
            folder = f"partition={partition}"
        case Layout.TIME:
            folder = f"year=2026/month=11/day=22/hour={hour:02}"
        case Layout.AIVEN:
            return f"views-{partition}-{first}{writer.around}"
    return f"views/{folder}/views+{partition}+{first:010}{writer.ending}"


def values(records: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows of some batches."""
    return [row for batch in records for row in batch.to_pylist()]


def _without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
