"""Declarations: all options of a stream or table beside its name, key and partition count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike, fspath
from typing import Any, TypedDict

from msgspec import UNSET, UnsetType

from partitioning.authoring.declared_keys import KeySchemas, declared_key
from partitioning.authoring.words import FormatName, KeyFormatName, LayoutName, NullKey
from partitioning.model.bad_records import REFUSE
from partitioning.model.bad_records import bad_records as parsed
from partitioning.model.placement import MURMUR2, HashName, KeyFormat, bucket_hash
from partitioning.model.sources import IcebergSource, address_of, source_of
from partitioning.model.stream_rules import checked
from partitioning.model.streams import DENSE, OFFSET, ChangeForm, Format, Layout, NullKeys, Stream, sparseness
from partitioning.model.watermarks import AHEAD, IDLE, EventTime

_MICROSECOND = timedelta(microseconds=1)


class Declared(TypedDict, total=False):
    """Options of a stream or table:

    source: where it lies, `s3://…`, `kafka://…`, `iceberg://catalogue.namespace` or a folder's whole path, if not
        where the pipeline's others do.
    key_format: how its producers serialise keys: string (unless given), long, int, double, uuid or bytes; json if they
        write a JSON object of the columns of the key, which are several, or one as `key=("id",)`; avro, protobuf or
        json-schema if a serialiser of a schema registry writes them.
    key_schemas: that registry's schemas that the keys have: their texts by their ids, the newest last.
    key_bytes: the column of landed files that has the key's own bytes, from which the columns of the key are read.
    keys: how the files are written that have keys beside those with values, as Confluent's sinks land them with
        store.kafka.keys=true: "avro", "json" or "parquet".
    offset: the column that holds each record's offset, `_offset` unless given; None if a file's name says that of its
        first record, and the others follow.
    null_keys: what becomes of records without a key: "refuse" (unless given), "drop" or "own task".
    hash: how its producers place keys: "murmur2" (unless given), "crc32", "fnv1a" or another of the page on producers,
        "opaque" or `package.module:function`. Of an Iceberg table its buckets say that.
    offsets: "dense" unless given; of "sparse(N)" ones some may be missing, between two files up to N.
    cast: columns that are read as another type than some files have, by DuckDB's names.
    format: how records are written: "parquet" (unless given), "avro", "json", or in a broker "bytes".
    columns: those of JSON that are of interest, and their types, as it does not say them.
    layout: "time" if files lie in folders of hours or days, and not in those of partitions; "aiven" if they are named
        as Aiven's sinks do by default.
    schema: that of Avro in a broker, as text, if it is not the registry's.
    private: columns whose values are masked wherever people or programs read them; the key may be one.
    bad_records: what becomes of a record that cannot be used: "refuse" (unless given), "set aside", or "set aside up to
        10", "… 0.1 %" or "… 10 or 0.1 %", beyond which the batch stops.
    time: when a record happened, an SQL expression over its columns: from it the stream's watermark comes.
    late: how much later than later ones of its partition a record may come, not at all unless given.
    idle: how long a partition without new records holds the watermark back, by when plans are made: a day unless given.
    behind: by how much at most, in event time, a partition that two batches find without new records holds it back.
    ahead: by how much times may exceed the day on which a batch is planned, a day unless given.
    """

    source: str | PathLike[str] | None
    key_format: KeyFormatName
    key_schemas: KeySchemas
    key_bytes: str | None
    keys: FormatName | None
    offset: str | None
    null_keys: NullKey
    hash: str
    offsets: str
    cast: Mapping[str, str] | None
    format: FormatName
    columns: Mapping[str, str] | None
    layout: LayoutName
    schema: str | None
    private: Sequence[str]
    bad_records: str
    time: str | None
    late: timedelta
    idle: timedelta
    behind: timedelta | None
    ahead: timedelta


def stream_of(
    name: str,
    key: str | Sequence[str],
    partitions: int,
    usual_source: str,
    *,
    table: bool,
    kept: bool = False,
    changes: ChangeForm | UnsetType = UNSET,
    source: str | PathLike[str] | None = None,
    key_format: str = KeyFormat.STRING,
    key_schemas: KeySchemas = (),
    key_bytes: str | None = None,
    keys: str | None = None,
    offset: str | None = OFFSET,
    null_keys: str = NullKeys.REFUSE,
    hash: str | None = None,
    offsets: str = DENSE,
    cast: Mapping[str, str] | None = None,
    format: str = Format.PARQUET,
    columns: Mapping[str, str] | None = None,
    layout: str = Layout.PARTITION,
    schema: str | None = None,
    private: Sequence[str] = (),
    bad_records: str = REFUSE,
    time: str | None = None,
    late: timedelta = timedelta(),
    idle: timedelta = IDLE,
    behind: timedelta | None = None,
    ahead: timedelta = AHEAD,
) -> Stream:
    """The declared stream. Raises Refused, with all findings."""
    uri = address_of(fspath(source)) if source else usual_source
    is_iceberg = isinstance(source_of(uri), IcebergSource)
    hash = hash or (bucket_hash(key_format) if is_iceberg else MURMUR2)
    key, key_format, hash = declared_key(name, key, key_format, hash, key_schemas)
    # Its own check says which words are none.
    words: Any = {
        "key_format": key_format,
        "null_keys": null_keys,
        "format": format,
        "layout": layout,
        "keys": keys or UNSET,
    }
    stream = Stream(
        name,
        uri,
        key,
        partitions,
        offset=OFFSET if offset is None else offset,
        hash=HashName(hash),
        table=table,
        sparse=sparseness(offsets, f"stream {name!r}"),
        cast=cast or UNSET,
        columns=columns or UNSET,
        schema=schema or UNSET,
        counted=offset is None or is_iceberg or UNSET,
        kept=kept or UNSET,
        changes=changes,
        key_bytes=key_bytes or UNSET,
        # Somebody who names one column may forget the brackets.
        private=((private,) if isinstance(private, str) else tuple(private)) or UNSET,
        bad_records=parsed(bad_records, f"stream {name!r}"),
        time=UNSET if time is None else _event_time(time, late, idle, ahead, behind),
        **words,
    )
    return checked(stream)


def _event_time(sql: str, late: timedelta, idle: timedelta, ahead: timedelta, behind: timedelta | None) -> EventTime:
    late_, idle_, ahead_ = (span // _MICROSECOND for span in (late, idle, ahead))
    return EventTime(sql, late_, idle_, ahead_, None if behind is None else behind // _MICROSECOND)
