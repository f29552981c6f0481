"""Streams of a test's own, landed as Kafka Connect's S3 sink would land them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash

_FILE = re.compile(r".+/partition=(?P<partition>\d+)/[^/]+\.parquet")


def land_table(
    table: pa.Table, stream: str, source: str, *, key: str, partitions: int, key_format: str = "string", files: int = 1
) -> None:
    """Land a table's records after those that are there, each in the partition of its key by murmur2.

    Records without a key go to all partitions in turn. Each partition's new records are split into `files`.
    """
    turn, ends, keys = count(), _ends(stream, source), table[key].to_pylist()
    hashes = {value: placement_hash(value, key_format) for value in set(keys) - {None}}
    places = [(next(turn) if value is None else hashes[value]) % partitions for value in keys]
    for partition in range(partitions):
        mine = table.filter(pa.array([place == partition for place in places], pa.bool_()))
        step = -(-mine.num_rows // files) or 1
        end = _end(source, ends[partition]) if mine.num_rows and partition in ends else 0
        for first in range(0, mine.num_rows, step):
            land_file(mine.slice(first, step), stream, source, partition, end + first)


def land_file(
    table: pa.Table,
    stream: str,
    source: str,
    partition: int,
    first: int,
    *,
    offsets: Sequence[int | None] | None = None,
) -> str:
    """Land one file whose name says `first`, with these offsets or those that follow `first`; gives its URI."""
    numbers = pa.array(range(first, first + table.num_rows) if offsets is None else offsets, pa.int64())
    key = f"{stream}/partition={partition}/{stream}+{partition}+{first:010}.parquet"
    sink = io.BytesIO()
    pq.write_table(table.append_column("_offset", numbers), sink)
    store_at(source).put(key, sink.getvalue())
    return f"{source}/{key}"


def _ends(stream: str, source: str) -> dict[int, str]:
    """The last file of each partition."""
    files = (_FILE.fullmatch(entry.key) for entry in store_at(source).list(f"{stream}/partition="))
    # They are listed by key, and the first offset in a key has as many digits in all of them.
    return {int(file["partition"]): file[0] for file in files if file}


def _end(source: str, last: str) -> int:
    """The offset after those of a file."""
    data = store_at(source).get(last)
    assert data is not None
    return int(last.removesuffix(".parquet").split("+")[-1]) + pq.read_metadata(io.BytesIO(data)).num_rows
