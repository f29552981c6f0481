"""Checks of stream declarations: all errors of one at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.key_schemas import Framing
from partitioning.model.offsets import check_name
from partitioning.model.placement import (
    JSON,
    KeyFormat,
    bucket_hash,
    each_of,
    hash_findings,
    hash_of_bytes,
    hash_schema,
    hashed_columns,
)
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource, source_findings
from partitioning.model.streams import (
    BY_THE_BROKER,
    DELETED,
    TIMESTAMP,
    USUAL_FORMAT,
    Format,
    Layout,
    NullKeys,
    Sparse,
    Stream,
)
from partitioning.numbers import DAYS, PARTITIONS
from partitioning.values import replace

# The error, and what to do about it.
_Wrong = tuple[str, str]
_DAY = 86_400 * 10**6


def checked(stream: Stream) -> Stream:
    """A stream from its declaration. Raises Refused with all findings if the declaration is wrong."""
    check_name(stream.name, "stream")
    refuse(stream_findings(stream))
    return replace(
        stream,
        sparse=_sparse(stream),
        key_format=KeyFormat(stream.key_format),
        null_keys=NullKeys(stream.null_keys),
        format=Format(stream.format),
        layout=Layout(stream.layout),
    )


def _sparse(stream: Stream) -> Sparse | None:
    match stream.origin:
        case LandedSource() | IcebergSource():
            return stream.sparse
        case KafkaSource():
            return BY_THE_BROKER


def stream_findings(stream: Stream) -> Iterator[Finding]:
    """All errors of the declaration itself."""
    where = f"stream {stream.name!r}"
    for wrong in (
        _of_keys,
        _of_key_bytes,
        _of_keys_beside,
        _of_columns,
        _of_changes,
        _of_private,
        _of_time,
        _of_format,
        _of_source,
    ):
        yield from (Finding.of(Kind.DECLARATION, what, where, then, wrong=what) for what, then in wrong(stream))
    yield from hash_findings(hash_of_bytes(stream.hash), stream.key_format, where)
    yield from source_findings(stream.origin, where)


def _of_keys(stream: Stream) -> Iterator[_Wrong]:
    if not stream.key or stream.key.lower() in {stream.offset.lower(), "_partition"}:
        yield f"{stream.key!r} cannot be the key column", "name the column that holds the record's key"
    if stream.partitions < 1:
        yield f"{stream.partitions} partitions declared", "declare the topic's count, 1 or more"
    elif finding := PARTITIONS.finding(stream.partitions, ""):
        yield f"partitions: {finding.what}", "declare the topic's count"
    if stream.key_format not in tuple(KeyFormat):
        as_object = f'; for a JSON object of that column, key=("{stream.key}",) and key_format="{JSON}"'
        then = f"use one of {', '.join((*KeyFormat, *Framing))}{as_object if stream.key_format == JSON else ''}"
        yield f"unknown key format {stream.key_format!r}", then
    if stream.null_keys not in tuple(NullKeys):
        yield f"unknown null-key policy {stream.null_keys!r}", f"use one of {', '.join(NullKeys)}"
    if key_parts(stream.key) and stream.null_keys != NullKeys.REFUSE:
        yield (
            "a record without any of several key columns has a key, of nulls",
            "leave null_keys= out; filter leaves records out too",
        )
    if stream.table and len(each_of(stream.hash)) > 1:
        yield (
            "a table's keys have several schemas, so its latest record of a key may lie in either of two partitions, "
            "whose offsets do not compare",
            "declare the newest schema of key_schemas= alone, and land older keys anew under it",
        )
    if stream.kept and stream.null_keys == NullKeys.OWN_TASK:
        then = 'use null_keys="refuse" or "drop", or leave kept= out'
        yield "records without a key cannot be kept by key", then


def _of_key_bytes(stream: Stream) -> Iterator[_Wrong]:
    if not stream.key_bytes:
        return
    if isinstance(stream.origin, KafkaSource) or stream.changes:
        what = "the changes say their keys" if stream.changes else "a broker has each key's bytes"
        yield f"{what}, and key_bytes= names a column with them", "leave key_bytes= out"
        return
    yield from _of_keys_by_their_bytes(stream)
    if stream.key_bytes in {*key_columns(stream.key), stream.offset}:
        what = f"column {stream.key_bytes!r} has the key's bytes, and is to be a column of its own too"
        yield what, f'name the one that is read from it otherwise, as key="{stream.key_bytes}_value"'


def columns_beside(stream: Stream) -> tuple[str, ...]:
    """The columns that are read from files with keys; none if there are no such files."""
    if not stream.keys:
        return ()
    return (stream.key_bytes,) if stream.key_bytes else key_columns(stream.key)


def _of_keys_beside(stream: Stream) -> Iterator[_Wrong]:
    """What is wrong with keys in files of their own."""
    if not stream.keys:
        return
    if stream.keys not in tuple(each for each in Format if each.lands):
        then = "use avro, json or parquet, as the sink's keys.format.class says; of plain bytes set AvroFormat there"
        yield f"keys={stream.keys!r} is no format of files of keys", then
    elif isinstance(stream.origin, KafkaSource) or stream.changes or stream.layout == Layout.AIVEN:
        yield "keys= is of files that Confluent's sinks land beside those of values", "leave keys= out"
    elif stream.keys == Format.JSON and {*columns_beside(stream)} - {*stream.columns}:
        missing = ", ".join(name for name in columns_beside(stream) if name not in stream.columns)
        what = f"its keys are JSON, which does not say of which types {missing} are"
        yield what, "declare them too, columns={name: type}"


def _of_columns(stream: Stream) -> Iterator[_Wrong]:
    for name in stream.cast.keys() & {stream.key, *key_parts(stream.key), stream.offset}:
        yield f"column {name!r} cannot be cast", "keys and offsets are read as they were landed"
    if stream.counted and stream.columns and stream.offset in stream.columns:
        yield (
            f"column {stream.offset!r} is declared, and offset=None says that records lack it",
            "leave one of both out",
        )


def _of_changes(stream: Stream) -> Iterator[_Wrong]:
    if not stream.changes:
        return
    for name in key_columns(stream.key):
        if stream.columns and name not in stream.columns:
            yield f"column {name!r} of the key is not declared", "add it to columns="
    if stream.columns and stream.columns.get(DELETED) != "BOOLEAN":
        yield f"column {DELETED!r} says whether a row is deleted", "leave it out of columns="
    if stream.columns and stream.offset in stream.columns:
        yield f"column {stream.offset!r} is declared, and is the record's, not the row's", "name another with offset="


def _of_private(stream: Stream) -> Iterator[_Wrong]:
    for name in stream.private:
        if not isinstance(name, str) or not name or name.lower() in {stream.offset.lower(), "_partition"}:
            yield f"{name!r} cannot be private", "name columns whose values nobody is to see"


def _of_time(stream: Stream) -> Iterator[_Wrong]:
    if not stream.time:
        return
    if stream.table:
        yield "a table has no watermark: of each key the latest record counts, however old", "leave time= out"
    if not stream.time.sql.strip():
        yield "time= is empty", "name the column, or give an SQL expression over the columns"
    for name, least in (("late", 0), ("idle", 1), ("ahead", 0), ("behind", 0)):
        span = getattr(stream.time, name) or 0
        if span < least:
            yield f"{name} is {timedelta(microseconds=span)}", f"give a time {'above 0' if least else 'of 0 or more'}"
        elif span and (finding := DAYS.finding(-(-span // _DAY), "")):
            yield f"{name} in days: {finding.what}", "give a shorter time"


def _of_format(stream: Stream) -> Iterator[_Wrong]:
    if stream.format not in tuple(Format):
        then = f"use one of {', '.join(Format)}"
        if stream.format == "csv":
            then += "; a sink that writes CSV is told otherwise as docs/internals/landed-files.md#other-tools says"
        yield f"unknown format {stream.format!r}", then
    elif stream.changes and not stream.columns:
        yield "change events do not say of which types columns are", "declare columns={name: type}"
    elif stream.format == Format.JSON and not stream.columns:
        yield "JSON does not say of which types its columns are", "declare columns={name: type}"
    elif stream.format != Format.JSON and stream.columns and not (stream.changes or _are_of_the_key(stream)):
        yield f"columns are declared, and {stream.format} says them itself", "leave columns= out"


def _are_of_the_key(stream: Stream) -> bool:
    """Whether the declared columns are those of a key in JSON, which nobody else says."""
    of_key = {*key_parts(stream.key)} if stream.key_bytes else set[str]()
    if stream.keys == Format.JSON:
        of_key |= {*columns_beside(stream)}
    return {*stream.columns} <= of_key


def _of_source(stream: Stream) -> Iterator[_Wrong]:
    match stream.origin:
        case LandedSource():
            yield from _of_landed(stream)
        case KafkaSource():
            yield from _of_kafka(stream)
        case IcebergSource():
            yield from _of_iceberg(stream)


def _of_landed(stream: Stream) -> Iterator[_Wrong]:
    if stream.format == Format.BYTES:
        yield "landed files are not plain bytes", "use the format that they are written in"
    if stream.schema:
        yield "a schema is given, and landed files say their own", "leave schema= out"
    if stream.layout not in tuple(Layout):
        yield f"unknown layout {stream.layout!r}", f"use one of {', '.join(Layout)}"
    if stream.counted and stream.sparse:
        what = "offsets are counted, and some may be missing: which record has which is unknown"
        yield what, "land records with their offset and name its column, or declare offsets='dense'"


def _of_keys_by_their_bytes(stream: Stream) -> Iterator[_Wrong]:
    """What is wrong with a key that is made of columns: it is read from its own bytes, so these have to say which."""
    parts, schema = key_parts(stream.key), hash_schema(stream.hash)
    if not parts or stream.changes or (schema and schema.framing is not Framing.JSON_SCHEMA):
        return
    if not hashed_columns(stream.hash):
        what = "keys of several columns that are written in an unknown way are not read from their bytes"
        yield what, f"declare key_format= if it is one of {', '.join((JSON, *Framing))}; or land them as columns"
    elif missing := [part for part in parts if part not in stream.columns]:
        what = f"the key is a JSON object, which does not say of which types {', '.join(missing)} are"
        format_json = 'format="json", ' if isinstance(stream.origin, KafkaSource) else ""
        yield what, f"declare them too, {format_json}columns={{name: type}}; or land them as columns"


def _of_iceberg(stream: Stream) -> Iterator[_Wrong]:
    right = bucket_hash(stream.key_format)
    if stream.changes:
        yield "changes are declared, and an Iceberg table has rows", "declare it as a stream"
    elif stream.hash != right:
        yield f"Iceberg's buckets are of one column, by {right}, and not by {stream.hash}", "leave hash= out"
    if stream.table and not stream.kept:
        yield "of an Iceberg table a batch reads what is new, and this one is read whole", "declare kept=True too"
    if stream.table and stream.null_keys is NullKeys.OWN_TASK:
        what = "rows of an Iceberg table come and go by their keys, and those without one are to be taken"
        yield what, "declare null_keys='drop', or name another column as the key"
    if stream.sparse:
        yield "the rows of an Iceberg table have no offsets that could be missing", "leave offsets= out"
    for name, given in (
        ("format", stream.format),
        ("layout", stream.layout),
        ("columns", stream.columns),
        ("schema", stream.schema),
        ("cast", stream.cast),
        ("keys", stream.keys),
        ("key_bytes", stream.key_bytes),
    ):
        if given and given not in (USUAL_FORMAT, Layout.PARTITION):
            yield f"{name}= is given, and an Iceberg table says that itself", f"leave {name}= out"


def _of_kafka(stream: Stream) -> Iterator[_Wrong]:
    yield from _of_keys_by_their_bytes(stream)
    if stream.changes and stream.format == Format.BYTES:
        what = "changes by Debezium are read from a broker as JSON or Avro, not as bytes"
        yield what, "let Connect write the topic by JsonConverter or AvroConverter; or land it, and read the files"
    if stream.format == Format.PARQUET:
        yield "a broker holds no Parquet", 'declare how its values are written: format="json", "avro" or "bytes"'
    if stream.schema and stream.format != Format.AVRO:
        yield f"a schema is given, and {stream.format} needs none", "leave schema= out"
    if stream.sparse not in (None, BY_THE_BROKER):
        yield "the broker itself knows which offsets there are", "leave offsets= out"
    if stream.counted:
        yield "offset=None is said, and a broker knows each record's offset", "leave offset= out, or name the column"
    if stream.layout != Layout.PARTITION:
        yield "a layout is given, and a broker has no folders", "leave layout= out"
    if stream.cast and (stream.changes or stream.format != Format.AVRO):
        yield f"columns are cast, and {stream.format} has the types that are declared", "leave cast= out"
    if TIMESTAMP in {stream.key, stream.offset}:
        yield f"the column {TIMESTAMP!r} holds the records' timestamps", "give the key or the offset another name"
    for name in stream.columns.keys() & {stream.key, stream.offset, TIMESTAMP}:
        yield f"column {name!r} is not of the value: the record has it beside", "leave it out of columns="
