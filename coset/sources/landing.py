"""Landing: writes rows of a user's own as a sink of Kafka Connect would, to try a pipeline on.

A real source needs none of this: a sink or a producer fills it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from coset.sources.arrow_schema import arrow_schema
from coset.sources.evolution import Evolution
from coset.sources.file_columns import FileColumns, UnknownType, columns_of
from coset.sources.files import Files
from coset.sources.formats.opening import open_landed
from coset.sources.layouts import Folders, folders_of
from partitioning.documents.stores import store_at
from partitioning.errors import Conflict, Finding, Refused
from partitioning.hashes import hash_of
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import MURMUR2, KeyFormat
from partitioning.model.sources import KafkaSource
from partitioning.model.streams import Format, Layout, Stream

# Arrow types by column.
Kinds = Mapping[str, pa.DataType]
# Passes on the partitions to write, each with its rows.
Through = Callable[[Sequence[tuple[int, pa.Table]]], Iterable[tuple[int, pa.Table]]]

_KEY_TYPES = {
    KeyFormat.STRING: pa.string(),
    KeyFormat.UUID: pa.string(),
    KeyFormat.LONG: pa.int64(),
    KeyFormat.INT: pa.int32(),
    KeyFormat.DOUBLE: pa.float64(),
    KeyFormat.BYTES: pa.binary(),
}
# Planning adds a column of this name.
_TAKEN = "_partition"
_MARK = "coset.landed"
_READ = "CSV with a header (.csv), JSON lines (.json, .jsonl, .ndjson) or Parquet (.parquet)"


def land(stream: Stream, file: Path, through: Through = iter) -> Sequence[OffsetRange]:
    """Write the rows of a file behind those that have landed, each in the partition of its key. Returns what is new.

    Raises Refused, before anything is written, if the file cannot be read, if its columns do not fit those that have
    landed, or if the stream is not landed as Parquet in folders of its partitions. The partitions to write go `through`
    what shows how far it is.
    """
    _check_stream(stream)
    there = _all_landed(stream)
    return _land(stream, _read(file, stream, _kinds(there.values())), str(file), there, through)


def land_rows(stream: Stream, rows: pa.Table, named: str, through: Through = iter) -> Sequence[OffsetRange]:
    """The same for rows that errors call as they are `named`."""
    _check_stream(stream)
    return _land(stream, rows, named, _all_landed(stream), through)


def _land(
    stream: Stream, rows: pa.Table, named: str, there: Mapping[int, _Landed], through: Through
) -> Sequence[OffsetRange]:
    rows, folders = _with_key(rows, stream, named), folders_of(stream)
    partitions = partitions_of(rows[stream.key], stream.partitions, stream.key_format, stream.hash)
    new = {int(number): rows.filter(pa.array(partitions == number)) for number in np.unique(partitions)}
    if findings := tuple(_unlandable(stream, rows.schema, named, there.values())):
        raise Refused(*findings)
    return [_append(stream, folders, mine, there[number]) for number, mine in through(list(new.items()))]


def partitions_of(keys: pa.ChunkedArray, count: int, key_format: str = "string", hash: str = MURMUR2) -> np.ndarray:
    """The partition of each key, of `count`. Records without a key go to all partitions in turn, as a producer's do.

    Raises Refused for a key that its format cannot hold, and for a hash that nobody knows.
    """
    h, encoded = hash_of(hash, "the stream's keys"), keys.combine_chunks().dictionary_encode()
    places = np.array([h(key, key_format) % count for key in encoded.dictionary.to_pylist()] or [0], dtype=np.int32)
    missing = encoded.indices.is_null().to_numpy(zero_copy_only=False)
    partitions: np.ndarray = places[encoded.indices.fill_null(0).to_numpy()]
    partitions[missing] = np.arange(missing.sum(), dtype=np.int32) % count
    return partitions


def _read(file: Path, stream: Stream, landed: Kinds) -> pa.Table:
    """The rows of a file, by the ending of its name. What is text gets the types of what has landed, where it fits."""
    try:
        match file.suffix:
            case ".csv":
                return _of_text(lambda kinds: _csv(file, stream, kinds), landed)
            case ".json" | ".jsonl" | ".ndjson":
                return _of_text(lambda kinds: _json_lines(file, kinds), landed)
            case ".parquet":
                return pq.read_table(file)
            case _:
                raise _unreadable(str(file), f"its name ends in {file.suffix or 'nothing'}")
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(str(file), str(error).splitlines()[0]) from error


def _of_text(read: Callable[[Kinds], pa.Table], landed: Kinds) -> pa.Table:
    """Rows of a text, which tells values and no types: two files may look different and mean the same."""
    rows = read({})
    guessed = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    wanted = {name: landed.get(name, _in_microseconds(kind)) for name, kind in guessed.items()}
    if wanted == guessed:
        return rows
    try:
        return read({name: kind for name, kind in wanted.items() if kind != guessed[name]})
    except pa.ArrowException:
        # What does not fit is told as a difference of columns.
        return rows


def _csv(file: Path, stream: Stream, kinds: Kinds) -> pa.Table:
    options = pa.csv.ConvertOptions(
        column_types={**kinds, stream.key: _KEY_TYPES[stream.key_format]}, null_values=[""], strings_can_be_null=True
    )
    return pa.csv.read_csv(file, convert_options=options)


def _json_lines(file: Path, kinds: Kinds) -> pa.Table:
    return pa.json.read_json(file, parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(list(kinds.items()))))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type with times as DuckDB's TIMESTAMP. Arrow guesses by their digits, and Parquet has no seconds."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.timestamp("us")
    if pa.types.is_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_microseconds(field.type)) for field in kind])
    return kind


def _with_key(rows: pa.Table, stream: Stream, named: str) -> pa.Table:
    """The rows, with the key in the type that the stream's keys have."""
    if why := _why_not(rows.column_names, stream):
        raise _unreadable(named, why)
    try:
        key = rows[stream.key].cast(_KEY_TYPES[stream.key_format])
    except pa.ArrowException as error:
        raise _unreadable(named, str(error).splitlines()[0]) from error
    return rows.set_column(rows.column_names.index(stream.key), stream.key, key)


def _why_not(names: Sequence[str], stream: Stream) -> str | None:
    """Why these columns are not those of the stream's records. None if they are."""
    folded = [name.lower() for name in names]
    if stream.offset.lower() in folded:
        return f"it has a column {stream.offset!r}, where offsets are to be written"
    if _TAKEN in folded:
        return f"it has a column {_TAKEN!r}, which Coset adds"
    if stream.key not in names:
        return f"it has no column {stream.key!r}, the key of stream {stream.name!r}"
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    return None if twice is None else f"two of its columns are named {twice!r}"


@dataclass(frozen=True, slots=True)
class _Landed:
    """What has landed of a partition: the offset behind it, and the columns of its last file, if it has one."""

    partition: int
    end: int = 0
    uri: str = ""
    columns: FileColumns | None = None


def _all_landed(stream: Stream) -> Mapping[int, _Landed]:
    folders = folders_of(stream)
    return {number: _landed(stream, folders, number) for number in range(stream.partitions)}


def _kinds(landed: Iterable[_Landed]) -> Kinds:
    """The types of the columns that have landed."""
    columns = [column for each in landed if each.columns is not None for column in each.columns.columns]
    schema = arrow_schema(tuple(dict.fromkeys(columns)))
    return dict(zip(schema.names, schema.types, strict=True))


def _landed(stream: Stream, folders: Folders, partition: int) -> _Landed:
    found = (each.entry.key for each in folders.objects_in(store_at(stream.source), partition))
    files = [(name.start, key) for key in found if (name := folders.parse(key))]
    if not files:
        return _Landed(partition)
    start, key = max(files)
    uri = f"{stream.source.rstrip('/')}/{key}"
    with Files().open(uri) as source:
        facts = open_landed(stream, source, start).facts()
    return _Landed(partition, start if facts.last is None else facts.last + 1, uri, facts.columns)


def _unlandable(stream: Stream, schema: pa.Schema, named: str, landed: Iterable[_Landed]) -> Iterator[Finding]:
    """Columns that planning could not read together with those that have landed."""
    try:
        columns = columns_of(schema)
    except UnknownType as error:
        then = "give the column another type"
        yield Finding.of(Kind.STREAM_COLUMNS, f"{error}, a type that DuckDB does not have", named, then, file=named)
        return
    offset = columns_of(pa.schema([(stream.offset, pa.int64())]))
    columns = FileColumns((*columns.columns, *offset.columns), columns.required)
    evolution = Evolution((), (), frozenset((stream.key, stream.offset)), stream.casts)
    for each in landed:
        if each.columns is not None:
            # What has landed is judged when it is planned.
            list(evolution.add(each.uri, each.partition, each.columns))
    yield from dict.fromkeys(
        finding for number in range(stream.partitions) for finding in evolution.add(named, number, columns)
    )


def _append(stream: Stream, folders: Folders, rows: pa.Table, landed: _Landed) -> OffsetRange:
    """Write the rows of a partition behind what has landed of it, also if somebody else lands rows meanwhile."""
    partition, store = StreamPartition(stream.name, landed.partition), store_at(stream.source)
    while True:
        written = OffsetRange(partition, landed.end, landed.end + rows.num_rows)
        key = f"{stream.name}/partition={landed.partition}/{stream.name}+{landed.partition}+{landed.end:010}.parquet"
        data = _parquet(stream, rows, landed.end)
        if store.put_new(key, data) == data:
            return written
        before, landed = landed, _landed(stream, folders, landed.partition)
        if landed.end == before.end:
            what = "a file without records has the name of the next one"
            raise Conflict.of(Kind.FOLDERS, what, f"{stream.source}/{key}", "remove it", partition=partition)


def _parquet(stream: Stream, rows: pa.Table, start: int) -> bytes:
    if not stream.counted:
        rows = rows.append_column(stream.offset, pa.array(range(start, start + rows.num_rows), pa.int64()))
    # No two files are alike: whoever finds its bytes stored has stored them.
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), _MARK: uuid4().hex})
    sink = io.BytesIO()
    pq.write_table(rows.combine_chunks(), sink)
    return sink.getvalue()


def _check_stream(stream: Stream) -> None:
    why = None
    if isinstance(stream.origin, KafkaSource):
        why = "is read from its broker"
    elif stream.written_as is not Format.PARQUET:
        why = f"is landed as {stream.written_as.noun}"
    elif stream.lies_by is not Layout.PARTITION:
        why = "lies in folders of a time"
    if why:
        what, then = f"stream {stream.name!r} {why}", "let its own producer or sink write the rows"
        raise Refused.of(Kind.FOLDERS, what, stream.source, then, stream=stream.name)


def _unreadable(named: str, why: str) -> Refused:
    then = f"name a file of {_READ} that has the stream's key"
    return Refused.of(Kind.LOCAL_FILE, f"the rows cannot be read: {why}", named, then, file=named)
