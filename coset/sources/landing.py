"""Landing: writes rows of a user's own as a sink of Kafka Connect would, to try a pipeline on.

A real source needs none of this: a sink or a producer fills it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources import given_rows
from coset.sources.evolution import Evolution, with_casts
from coset.sources.file_columns import NULL_TYPE, FileColumns, UnknownType, arrow_schema, columns_of, keeps_values
from coset.sources.files import Files
from coset.sources.formats.landed_file import LAND_AGAIN, MARK, Unreadable
from coset.sources.formats.opening import open_landed, undeclared
from coset.sources.given_rows import KEY_TYPES, Kinds, checked, lines_in, rows_in, unreadable
from coset.sources.landed_keys import making_keys
from coset.sources.layouts import Folders, folders_of
from partitioning.documents.stores import store_at
from partitioning.errors import Conflict, Finding, Refused, refuse
from partitioning.hashes import hash_of
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import MURMUR2
from partitioning.model.sources import IcebergSource, KafkaSource
from partitioning.model.streams import Column, Layout, Stream


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of a partition that are to land: how many, and their file if the first of them has this offset."""

    count: int
    file: Callable[[int], bytes]


# Passes on the partitions to write, each with its rows.
Through = Callable[[Sequence[tuple[int, NewRows]]], Iterable[tuple[int, NewRows]]]

# Planning adds a column of this name.
_TAKEN = "_partition"
_CORRECT = "correct the line, declare the column as it is written, or let the stream set such records aside"


def land(stream: Stream, file: Path, through: Through = iter) -> Sequence[OffsetRange]:
    """Write the rows of a file behind those that have landed, each in the partition of its key. Returns what is new.

    Raises Refused, before anything is written, if the file cannot be read, if its columns do not fit those that have
    landed, or if the stream is not landed as Parquet or JSON lines in folders of its partitions. The partitions to
    write go `through` what shows how far it is.
    """
    _check_stream(stream)
    there = _all_landed(stream)
    if stream.format.has_types:
        return _land(stream, rows_in(file, stream, _kinds(there.values())), str(file), there, through)
    refuse(undeclared(stream))
    lines = lines_in(file, stream)
    if why := given_rows.why_not(stream, lines):
        raise unreadable(str(file), why)
    try:
        keys = given_rows.keys_of(stream, lines)
    except Unreadable as error:
        # Of changes that are none of a row it is known what to do about them.
        raise unreadable(str(file), str(error), error.then if stream.changes else _CORRECT) from error
    partitions = _partitions(_as_declared(keys, stream, str(file)), stream)
    new = {
        int(number): [line for line, partition in zip(lines, partitions, strict=True) if partition == number]
        for number in np.unique(partitions)
    }
    written = {number: NewRows(len(mine), partial(_json_file, stream, mine)) for number, mine in new.items()}
    return _written(stream, written, there, through)


def land_rows(stream: Stream, rows: pa.Table, named: str, through: Through = iter) -> Sequence[OffsetRange]:
    """The same for rows that errors call as they are `named`."""
    _check_stream(stream)
    return _land(stream, checked(rows, named), named, _all_landed(stream), through)


def _land(
    stream: Stream, rows: pa.Table, named: str, there: Mapping[int, _Landed], through: Through
) -> Sequence[OffsetRange]:
    rows = _with_key(rows, stream, named)
    partitions = _partitions(_keys(rows, stream), stream)
    new = {int(number): rows.filter(pa.array(partitions == number)) for number in np.unique(partitions)}
    refuse(_unlandable(stream, rows, named, there.values()))
    written = {number: NewRows(mine.num_rows, partial(_parquet, stream, mine)) for number, mine in new.items()}
    return _written(stream, written, there, through)


def _written(
    stream: Stream, new: Mapping[int, NewRows], there: Mapping[int, _Landed], through: Through
) -> Sequence[OffsetRange]:
    folders = folders_of(stream)
    return [_append(stream, folders, mine, there[number]) for number, mine in through(list(new.items()))]


def _keys(rows: pa.Table, stream: Stream) -> pa.ChunkedArray:
    if not (parts := key_parts(stream.key)):
        return rows[stream.key]
    with making_keys(parts) as keys_of:
        return pa.chunked_array([keys_of(rows)])


def _partitions(keys: pa.ChunkedArray, stream: Stream) -> np.ndarray:
    return partitions_of(keys, stream.partitions, stream.key_format, stream.hash)


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


def _with_key(rows: pa.Table, stream: Stream, named: str) -> pa.Table:
    """The rows, with the key in the type that the stream's keys have."""
    if wrong := _why_not(rows.column_names, stream):
        raise unreadable(named, *wrong)
    if key_parts(stream.key):
        return rows
    key = _as_declared(rows[stream.key], stream, named)
    return rows.set_column(rows.column_names.index(stream.key), stream.key, key)


def _as_declared(keys: pa.ChunkedArray, stream: Stream, named: str) -> pa.ChunkedArray:
    """The keys in the type that the stream's keys have."""
    try:
        return keys.cast(KEY_TYPES[stream.key_format])
    except pa.ArrowException as error:
        then = f'correct it in the file, or declare another key_format= than "{stream.key_format}"'
        raise unreadable(named, f"key {stream.key!r}: {str(error).splitlines()[0]}", then) from error


def _why_not(names: Sequence[str], stream: Stream) -> tuple[str, str] | None:
    """Why these columns are not those of the stream's records, and what to do. None if they are."""
    folded, rename = [name.lower() for name in names], "give it another name in the file"
    if stream.offset.lower() in folded:
        return f"it has a column {stream.offset!r}, where offsets are to be written", rename
    if _TAKEN in folded:
        return f"it has a column {_TAKEN!r}, which Coset adds", rename
    if "" in names:
        return "one of its columns has no name", "name it in the file"
    if missing := next((name for name in key_columns(stream.key) if name not in names), None):
        then = "call the key so in the file, or declare key= as it is called there: it has " + ", ".join(
            map(repr, names)
        )
        return f"it has no column {missing!r}, the key of stream {stream.name!r}", then
    if twice := next((name for name in names if folded.count(name.lower()) > 1), None):
        then = "give one of them another name in the file: capitals tell no columns apart"
        return f"two of its columns are named {twice!r}", then
    return None


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
    schema = arrow_schema(tuple(column for column in dict.fromkeys(columns) if NULL_TYPE not in column.type))
    return dict(zip(schema.names, schema.types, strict=True))


def _landed(stream: Stream, folders: Folders, partition: int) -> _Landed:
    found = (each.entry.key for each in folders.objects_in(store_at(stream.source), partition))
    files = [(name.start, key) for key in found if (name := folders.parse(key))]
    if not files:
        return _Landed(partition)
    start, key = max(files)
    uri = f"{stream.source.rstrip('/')}/{key}"
    try:
        with Files().open(uri) as source:
            facts = open_landed(stream, source, start).facts()
    except (pa.ArrowException, OSError, UnknownType, Unreadable) as error:
        what = f"{stream.name}: the file that landed last cannot be read: {str(error).splitlines()[0]}"
        then = error.then if isinstance(error, Unreadable) else LAND_AGAIN
        raise Refused.of(Kind.FILE_UNREADABLE, what, uri, then, file=uri) from error
    return _Landed(partition, start if facts.last is None else facts.last + 1, uri, facts.columns)


def _unlandable(stream: Stream, rows: pa.Table, named: str, landed: Iterable[_Landed]) -> Iterator[Finding]:
    """Columns that planning could not read together with those that have landed."""
    try:
        columns = columns_of(rows.schema)
    except UnknownType as error:
        then = "give the column another type"
        yield Finding.of(Kind.STREAM_COLUMNS, f"{error}, a type that DuckDB does not have", named, then, file=named)
        return
    offset = columns_of(pa.schema([(stream.offset, pa.int64())]))
    columns = FileColumns((*columns.columns, *offset.columns), columns.required)
    evolution = Evolution((), (), frozenset((*key_columns(stream.key), stream.offset)), stream.cast)
    called = dict[str, str]()
    for each in landed:
        if each.columns is not None:
            # Landed files are judged when they are planned.
            list(evolution.add(each.uri, each.partition, each.columns))
            called |= {column.name.lower(): column.name for column in each.columns.columns}
    for name in (column.name for column in columns.columns):
        if (was := called.get(name.lower(), name)) != name:
            what, then = f"column {name!r} has landed as {was!r}", "call it so in the file, as SQL tells no cases apart"
            yield Finding.of(Kind.STREAM_COLUMNS, what, named, then, name=name)
    evolution.differing.clear()
    found = [each for number in range(stream.partitions) for each in evolution.add(named, number, columns)]
    yield from with_casts(dict.fromkeys(found), evolution, partial(_cast_reads, rows))


def _cast_reads(rows: pa.Table, name: str, kind: str) -> str:
    """What a cast reads of a column of rows; nothing if a value would become another."""
    (wanted,) = arrow_schema((Column(name, kind),)).types
    return "which reads them" if all(keeps_values(chunk, wanted) for chunk in rows[name].chunks) else ""


def _append(stream: Stream, folders: Folders, new: NewRows, landed: _Landed) -> OffsetRange:
    """Write the rows of a partition behind what has landed of it, also if somebody else lands rows meanwhile."""
    partition, store = StreamPartition(stream.name, landed.partition), store_at(stream.source)
    while True:
        written = OffsetRange(partition, landed.end, landed.end + new.count)
        name = f"{stream.name}+{landed.partition}+{landed.end:010}.{stream.format}"
        key, data = f"{stream.name}/partition={landed.partition}/{name}", new.file(landed.end)
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
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), MARK: uuid4().hex})
    sink = io.BytesIO()
    pq.write_table(rows.combine_chunks(), sink)
    return sink.getvalue()


def _json_file(stream: Stream, lines: Sequence[bytes], start: int) -> bytes:
    # As with Parquet, no two files are alike; but for such of which no line can be read.
    return given_rows.numbered(stream, lines, start, **{MARK: uuid4().hex})


def _check_stream(stream: Stream) -> None:
    why = None
    if isinstance(stream.origin, KafkaSource):
        why = "is read from its broker"
    elif isinstance(stream.origin, IcebergSource):
        why = "is an Iceberg table"
    elif not stream.format.by_duckdb:
        why = f"is landed as {stream.format.noun}"
    elif stream.key_bytes:
        why = "has the bytes that a serialiser makes of keys"
    elif stream.keys:
        why = "has keys in files of their own"
    elif stream.changes and stream.format.has_types:
        why = f"is landed as {stream.format.noun} with changes in it"
    elif stream.layout is not Layout.PARTITION:
        why = f'has layout="{stream.layout}"'
    if why:
        what, then = f"stream {stream.name!r} {why}", "let its own producer or sink write the rows"
        raise Refused.of(Kind.FOLDERS, what, stream.source, then, stream=stream.name)
