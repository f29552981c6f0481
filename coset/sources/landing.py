"""Landing of your own rows as Kafka Connect's sink would write them, to try a pipeline.

A real source is filled by others.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from coset.sources.files import Files
from coset.sources.formats.opening import open_landed
from coset.sources.layouts import Folders, folders_of
from partitioning.documents.stores import store_at
from partitioning.errors import Conflict, Finding, Refused, about
from partitioning.hashes import hash_of
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import KeyFormat
from partitioning.model.sources import KafkaSource, LandedSource
from partitioning.model.streams import Format, Layout, Stream

_KEY_TYPES = {
    KeyFormat.STRING: pa.string(),
    KeyFormat.UUID: pa.string(),
    KeyFormat.LONG: pa.int64(),
    KeyFormat.INT: pa.int32(),
    KeyFormat.DOUBLE: pa.float64(),
    KeyFormat.BYTES: pa.binary(),
}
_READ = "CSV with a header (.csv), JSON lines (.json, .jsonl, .ndjson) or Parquet (.parquet)"


def read_rows(file: Path, stream: Stream) -> pa.Table:
    """The rows of a file, read by its ending. The key has the type of the stream's keys.

    Raises Refused if the file cannot be read or has no such key.
    """
    key_type = _KEY_TYPES[stream.key_format]
    try:
        match file.suffix:
            case ".csv":
                options = pa.csv.ConvertOptions(
                    column_types={stream.key: key_type}, null_values=[""], strings_can_be_null=True
                )
                rows = pa.csv.read_csv(file, convert_options=options)
            case ".json" | ".jsonl" | ".ndjson":
                rows = pa.json.read_json(file)
            case ".parquet":
                rows = pq.read_table(file)
            case _:
                raise _unreadable(file, f"its name ends in {file.suffix or 'nothing'}")
        if stream.key not in rows.column_names:
            raise _unreadable(file, f"it has no column {stream.key!r}, the key of stream {stream.name!r}")
        if stream.offset in rows.column_names:
            raise _unreadable(file, f"it has a column {stream.offset!r}, where offsets are to be written")
        place = rows.column_names.index(stream.key)
        return rows.set_column(place, stream.key, rows[stream.key].cast(key_type))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, str(error).splitlines()[0]) from error


def land(stream: Stream, rows: pa.Table) -> Sequence[OffsetRange]:
    """Write rows behind those that landed, each into the partition of its key. Returns the new ranges.

    Records without a key go to all partitions in turn, as with Kafka's producers.

    Raises Refused for a stream that is not landed as Parquet in partition folders, or whose placement is unknown;
    Conflict if another process lands it at the same moment.
    """
    _check(stream)
    folders, partitions = folders_of(stream), pa.array(_partitions(stream, rows[stream.key]), pa.int32())
    landed = list[OffsetRange]()
    for number in range(stream.partitions):
        mine = rows.filter(pa.compute.equal(partitions, number))
        if mine.num_rows:
            start = _end(stream, folders, number)
            _write(stream, number, start, mine)
            landed.append(OffsetRange(StreamPartition(stream.name, number), start, start + mine.num_rows))
    return landed


def _partitions(stream: Stream, keys: pa.ChunkedArray) -> Sequence[int]:
    h, turn = hash_of(stream.hash, f"stream {stream.name!r}"), count()
    return [(next(turn) if key is None else h(key, stream.key_format)) % stream.partitions for key in keys.to_pylist()]


def _end(stream: Stream, folders: Folders, partition: int) -> int:
    """The log end offset of a partition."""
    found = (each.entry.key for each in folders.objects_in(store_at(stream.source), partition))
    # Keys sort by offset.
    files = [(name.start, key) for key in found if (name := folders.parse(key))]
    if not files:
        return 0
    start, key = max(files)
    with Files().open(f"{stream.source.rstrip('/')}/{key}") as source:
        last = open_landed(stream, source, start).facts().last
    return start if last is None else last + 1


def _write(stream: Stream, partition: int, start: int, rows: pa.Table) -> None:
    key = f"{stream.name}/partition={partition}/{stream.name}+{partition}+{start:010}.parquet"
    if not stream.counted:
        rows = rows.append_column(stream.offset, pa.array(range(start, start + rows.num_rows), pa.int64()))
    sink = io.BytesIO()
    pq.write_table(rows.combine_chunks(), sink)
    if not store_at(stream.source).put_new(key, sink.getvalue()):
        what, then = "somebody else landed this file at the same moment", "land the rows that are missing again"
        raise Conflict(Finding(Kind.FOLDERS, what, f"{stream.source}/{key}", then, about(stream=stream.name)))


def _check(stream: Stream) -> None:
    why: str | None
    match stream.origin:
        case KafkaSource():
            why = "is read from its broker"
        case LandedSource():
            why = _unlike_ours(stream)
    if why:
        what, then = f"stream {stream.name!r} {why}", "write the records with what writes them otherwise"
        raise Refused(Finding(Kind.FOLDERS, what, stream.source, then, about(stream=stream.name)))


def _unlike_ours(stream: Stream) -> str | None:
    """What sets the files of a stream apart from those that are written here."""
    if stream.written_as is not Format.PARQUET:
        return f"is landed as {stream.written_as.noun}"
    return None if stream.lies_by is Layout.PARTITION else "lies in folders of a time"


def _unreadable(file: Path, why: str) -> Refused:
    then = f"name a file of {_READ} that has the stream's key"
    return Refused(Finding(Kind.LOCAL_FILE, f"the rows cannot be read: {why}", str(file), then, about(file=file)))
