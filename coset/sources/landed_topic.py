"""Landed topics: what lies in the folder of one, seen without a declaration of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import NULL_TYPE, UnknownType, cast_exactly, columns_of
from coset.sources.files import Files
from coset.sources.formats.avro import AvroRows
from coset.sources.formats.changes_seen import form_in, form_of, left_by, rows_of, types_in, types_of
from coset.sources.formats.compressed import decompressed
from coset.sources.formats.json_lines import JsonRows, json_columns
from coset.sources.formats.landed_file import LAND_AGAIN, OFFSET_TYPE, PARTITION, Unreadable
from coset.sources.formats.opening import LANDED, begins, open_landed
from coset.sources.formats.parquet import ParquetRows
from coset.sources.keys_seen import KeyFiles, beside
from coset.sources.layouts import AIVEN, NO_CSV, FileName, folders_of, instead_of, may_hold_records, sink_of
from coset.sources.plain_arrays import is_nested, plain_type
from coset.sources.s3 import store_error
from partitioning.commands import Inspect, Then
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import check_name
from partitioning.model.sources import named_file, why_no_root
from partitioning.model.streams import DELETED, OFFSET, ChangeForm, Column, Format, Layout, Stream
from partitioning.sections import cut, many
from partitioning.values import replace

_AT_ONCE = 16
# A sample has so many records of a file, and of all files together.
_OF_A_FILE = 5_000
_OF_ALL = 2_000_000
_EVERY = 2**63 - 1
# Topics that may be meant are looked for by so many requests of so many objects, and so many of them named.
_AT_MOST, _NEAR, _SHOWN = 50, 200, 5
# By so many bytes a format is told.
_HEAD = 4
_NO_KEYS = KeyFiles()
_PAGE = "docs/internals/landed-files.md"


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """What lies in a topic's folder or broker: the stream as it can be declared but for how its key is placed, the
    columns of a `sample` of records of each partition, the columns that cannot be declared with why, how many files lie
    beside its own, and what is wrong with the records of those that were looked into. The key of a landed topic is not
    known. If files of `keys` lie beside those of values, only these have the columns `of_keys`."""

    stream: Stream
    columns: tuple[Column, ...]
    sample: pa.Table
    left_out: Mapping[str, str]
    beside: int
    unread: tuple[Finding, ...]
    keys: KeyFiles = _NO_KEYS
    of_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A file that is looked into."""

    uri: str
    partition: int
    start: int


def look(address: str) -> SeenTopic:
    """What has landed in the folder of a topic, `s3://bucket/topics/orders` or a folder's address.

    Its oldest and its newest file of each partition are looked into. Raises Refused if no records of one topic in one
    format lie there.
    """
    source, _, name = address.rstrip("/").rpartition("/")
    if why := why_no_root(address):
        then = "write it as s3://bucket/topics/orders, or as the path of a folder"
        raise Refused.of(Kind.ARGUMENT, f"{address!r} {why}", "ADDRESS", then, address=address)
    asked = Stream(name, source, "", 1)
    # They have the files in the topic's folder, and those beside it that Aiven's sinks name so.
    folders = folders_of(replace(asked, layout=Layout.AIVEN))
    keys = [] if why_no_root(source) else [each.entry.key for each in folders.listed(store_at(source), {})]
    there = [key for key in keys if may_hold_records(asked, key)]
    layout, written, files = _named(name, source, there)
    if layout is Layout.AIVEN and len(written) > 1:
        written = {_held(f"{source}/{max(files)}"): len(files)}
    if not files:
        raise _nothing(source, name, address.rstrip("/"), there)
    if name not in (topics := sorted({file.stream for file in files.values()})):
        raise _nothing(source, name, address.rstrip("/"), there, topics)
    if len(written) > 1:
        what = "files of several formats: " + ", ".join(f"{many(n, 'file')} of {f.noun}" for f, n in written.items())
        then = "a stream has one format: move the files of the others to a folder of another topic's name"
        raise Refused.of(Kind.FOLDERS, what, address, then, formats=list(written))
    check_name(name, "stream")
    (form,) = written
    count = 1 + max(file.partition if file.folder is None else file.folder for file in files.values())
    stream = Stream(name, source, "", count, offset="", format=form, layout=layout)
    return _looked_into(stream, files, len(there) - len(files), KeyFiles.among(stream, keys))


def _named(name: str, source: str, keys: Iterable[str]) -> tuple[Layout, Mapping[Format, int], Mapping[str, FileName]]:
    """The layout of a topic's files, how many each format has, and what their names say. Folders of partitions hide all
    else."""
    asked = Stream(name, source, "", 1)
    read = {each: [(form, folders_of(replace(asked, layout=each, format=form))) for form in LANDED] for each in Layout}
    written, files = {each: Counter[Format]() for each in Layout}, {each: dict[str, FileName]() for each in Layout}
    for key in keys:
        for layout, ways in read.items():
            for form, folders in ways:
                if (said := folders.parse(key)) is not None:
                    written[layout][form] += 1
                    files[layout][key] = said
    layout = next((each for each in Layout if files[each]), Layout.PARTITION)
    return layout, written[layout], files[layout]


def _held(uri: str) -> Format:
    """The format of a file, by what it holds: its name does not say."""
    with Files().open(uri) as file, decompressed(file, _HEAD) as content:
        head = content.read(_HEAD)
    if written_as := begins(head):
        return written_as
    what = "the file is neither Parquet, nor Avro, nor JSON, by what it holds, and so may be CSV"
    raise Refused.of(Kind.FILE_UNREADABLE, what, uri, NO_CSV, file=uri)


def _nothing(source: str, name: str, address: str, there: Sequence[str], named: Sequence[str] = ()) -> Refused:
    """Why no topic of that name is there, and which ones are near. The files that are there are `named` as others'."""
    what, where = "no file of a topic is there", address
    then: Then = "correct the address: it is that of the folder with a topic's name, as s3://bucket/topics/orders"
    near = sorted({topic for topic in _topics(address, source) if topic != address})
    within = [topic for topic in near if topic.startswith(f"{address}/")]
    # Files that lie in it are of another topic only if this is around them.
    if within or any(address.startswith(f"{topic}/") for topic in near) or (near and not named and not there):
        what = "the folder is no topic's" + (f", and has {many(len(within), 'topic')} within" if within else "")
        shown = [part for topic in (within or near)[:_SHOWN] for part in (", ", Inspect(topic))][1:]
        left = len(within or near) - _SHOWN
        then = ("name that of a topic: ", *shown, f", … and {many(left, 'topic')} more" if left > 0 else "")
    elif named:
        what = f"the files there are of {cut(named)}, by their names"
        then = f"give the folder the name of its topic, so that its address ends in /{named[0]}"
    elif there:
        what = f"none of {many(len(there), 'file')} there is named as files of a topic are"
        where, wanted = f"{source}/{there[0]}", folders_of(Stream(name, source, "", 1)).wanted
        then = f"land the topic's files as {name}/{wanted}, or in another layout or format that {_PAGE} has"
        if sink := sink_of(there[0]):
            what, then = f"{what}: {where.rpartition('/')[2]} is a name of {sink}", instead_of(sink, there[0])
    return Refused.of(Kind.FOLDERS, what, where, then, address=address)


def _topics(address: str, source: str) -> Iterator[str]:
    """The addresses of topics in a folder, around it, or beside it."""
    within = [root for root in (address, source) if not why_no_root(root)]
    for root in within:
        # This only helps to name what may be meant: whatever else lies there is not looked at.
        found = list[str]()
        with suppress(CosetError):
            found.extend(_topics_in(root))
        if found:
            return (yield from found)


def _topics_in(root: str) -> Iterator[str]:
    """The addresses of topics in a folder, or of the one that it lies in. The files of each are listed no further."""
    store, after = store_at(root), ""
    for _ in range(_AT_MOST):
        page = store.page("", after, _NEAR)
        keys = [found.entry.key for found in page.objects if sink_of(found.entry.key) in (None, AIVEN)]
        seen = (
            (f"{root}/{key}", said) for key in keys if (said := named_file(f"/{key}")) and said["stream"][0] not in "_."
        )
        uri, said = next(seen, ("", None))
        if said is None:
            if not page.more:
                return
            after = page.objects[-1].entry.key
            continue
        topic = said["stream"]
        if (place := uri.find(f"/{topic}/")) >= 0:
            address = uri[: place + 1 + len(topic)]
            # What sorts behind a slash.
            after = f"{address}0"
        else:
            address = f"{uri.rpartition('/')[0]}/{topic}"
            after = f"{address}-:"
        yield address
        if not after.startswith(f"{root}/"):
            return
        after = after.removeprefix(f"{root}/")


def _looked_into(stream: Stream, files: Mapping[str, FileName], others: int, keys: KeyFiles) -> SeenTopic:
    """The topic with what its oldest and newest files hold."""
    of = defaultdict[int, list[_Sampled]](list)
    for key, said in files.items():
        of[said.partition].append(_Sampled(f"{stream.source}/{key}", said.partition, said.start))
    ends = [(min(each, key=_start), max(each, key=_start)) for _, each in sorted(of.items())]
    wanted = list(dict.fromkeys(file for both in ends for file in both))
    left_out, store, form = dict[str, str](), Files(), None
    columns = dict[str, str]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        if not stream.format.has_types:
            lines = list(pool.map(lambda file: _lines(store, file), wanted))
            form, columns, left_out = seen_in(lines)
            # What is read names no offset yet, and has no column that is not declared.
            stream = replace(stream, columns=columns, offset=next(iter(columns), ""))
        else:
            for form_there, types in filter(None, pool.map(partial(_typed_changes, store, stream), wanted)):
                form, columns = form_there, columns | types
        if form:
            at = next((name for name in columns if "offset" in name.lower()), OFFSET)
            stream = replace(stream, changes=form, offset=at, columns={**columns, DELETED: "BOOLEAN"})
        most = max(100, min(_OF_A_FILE, _OF_ALL // len(wanted)))
        known = stream.format.has_types or stream.columns
        looked = list(pool.map(lambda file: _records(store, stream, file, most), wanted if known else ()))
    read = [(file, table) for file, (table, _) in zip(wanted, looked, strict=False) if table is not None and len(table)]
    offset = _offset([(file.start, table) for file, table in read])
    stream = replace(stream, offset=offset or OFFSET, counted=not offset)
    if stream.columns:
        stream = replace(stream, columns={name: kind for name, kind in stream.columns.items() if name != offset})
    of_keys = frozenset[str]()
    if keys.names:
        names = [file.uri.removeprefix(f"{stream.source}/") for file, _ in read]
        tables, of_keys = beside([table for _, table in read], keys.read(stream, store, names, most))
        read = [(file, table) for (file, _), table in zip(read, tables, strict=True)]
    sample = _together([table.append_column(PARTITION, _all(file.partition, table)) for file, table in read])
    unread = tuple(finding for _, findings in looked for finding in findings)
    return SeenTopic(stream, tuple(columns_in(sample)), sample, left_out, others, unread, keys, of_keys)


def _typed_changes(store: Files, stream: Stream, file: _Sampled) -> tuple[ChangeForm, dict[str, str]] | None:
    """The form of change events in a typed file, and the types of their columns. None if it has none, or is damaged."""
    with suppress(OSError, Unreadable, pa.ArrowException), store.open(file.uri) as source:
        landed = open_landed(stream, source, file.start)
        if isinstance(landed, AvroRows | ParquetRows) and (form := form_in(landed.schema)):
            return form, types_in(landed.schema, landed.avro_schema, form)
    return None


def _start(file: _Sampled) -> int:
    return file.start


def _all(partition: int, table: pa.Table) -> pa.Array:
    return pa.array([partition] * len(table), pa.int64())


def _records(store: Files, stream: Stream, file: _Sampled, most: int) -> tuple[pa.Table | None, tuple[Finding, ...]]:
    """The first records of a file, with their columns that are not nested, or why they cannot be read."""
    batches, left = list[pa.RecordBatch](), most
    try:
        with store.open(file.uri) as source:
            landed = open_landed(stream, source, file.start)
            flat = pa.schema([field for field in landed.schema if not is_nested(field.type)])
            for batch in landed.batches(flat.names, 0, _EVERY):
                batches.append(_plain(left_by(batch) if stream.changes else batch.slice(0, left), flat))
                left -= len(batch)
                if left <= 0:
                    break
    except (UnknownType, FileNotFoundError):
        return None, ()
    except Unreadable as error:
        return None, (Finding.of(Kind.FILE_UNREADABLE, str(error), file.uri, error.then, file=file.uri),)
    except (pa.ArrowException, OSError) as error:
        return None, store_error(error, "the file cannot be read", file.uri, LAND_AGAIN).findings
    return pa.Table.from_batches(batches) if batches else None, ()


def _plain(batch: pa.RecordBatch, written: pa.Schema) -> pa.RecordBatch:
    """The records in plain types. Times of INT96 that come as text are left out: no key is a time."""
    late = {field.name for field in written if pa.types.is_timestamp(field.type)} & {
        field.name for field in batch.schema if pa.types.is_string(field.type)
    }
    columns = [
        pa.nulls(len(batch), written.field(name).type)
        if name in late
        else cast_exactly(column, plain_type(column.type))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """All records; if their columns do not go together, those of files that have the columns of the last."""
    if not tables:
        return pa.table({})
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return pa.concat_tables([table for table in tables if table.schema == tables[-1].schema])


def columns_in(sample: pa.Table) -> Iterator[Column]:
    """The columns of a sample that DuckDB has types for."""
    for field in sample.schema:
        with suppress(UnknownType):
            (column,) = columns_of(pa.schema([field])).columns
            if field.name != PARTITION and column.type != NULL_TYPE:
                yield column


def _offset(read: Sequence[tuple[int, pa.Table]]) -> str | None:
    """The column that holds each record's offset, if there is one: it rises, from the offset that each file's name
    says. One that has the usual name is taken for it, to be judged by discovery."""
    names = read[0][1].schema.names if read else []
    if OFFSET in names:
        return OFFSET
    return next((name for name in names if "offset" in name.lower() and _rises(name, read)), None)


def _rises(name: str, read: Iterable[tuple[int, pa.Table]]) -> bool:
    for start, table in read:
        if name not in table.schema.names or columns_of(table.select([name]).schema).columns[0].type != OFFSET_TYPE:
            return False
        offsets = table[name].combine_chunks()
        if offsets.null_count or offsets[0].as_py() != start:
            return False
        if not pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
            return False
    return True


def _lines(store: Files, file: _Sampled) -> list[dict[str, object]]:
    """The first objects of a file of JSON lines. Unreadable files are left to discovery."""
    with suppress(OSError, Unreadable, ValueError), store.open(file.uri) as source:
        blocks = JsonRows(source, "", pa.schema([])).blocks()
        lines = (line for block in blocks for line in block.split(b"\n") if line.strip())
        found = [json.loads(line) for line in islice(lines, _OF_A_FILE)]
        return [each for each in found if isinstance(each, dict)]
    return []


def seen_in(files: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[ChangeForm | None, dict[str, str], dict[str, str]]:
    """The form of change events in JSON objects, if they are some, the columns of their rows or of themselves, and why
    others have none."""
    form = form_of(files)
    columns, left_out = json_columns(rows_of(files, form) if form else files)
    if form and (typed := types_of(files, form)):
        columns, left_out = columns | typed, {name: why for name, why in left_out.items() if name not in typed}
    return form, columns, left_out
