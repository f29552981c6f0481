"""Declarations: all options of a stream or table beside its name, key and partition count."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, TypedDict

from msgspec import UNSET

from partitioning.model.misdeclared import checked
from partitioning.model.placement import MURMUR2, HashName, KeyFormat
from partitioning.model.sources import address_of
from partitioning.model.streams import DENSE, OFFSET, Format, Layout, NullKeys, Stream, sparseness


class Declared(TypedDict, total=False):
    """The options of a stream or table.

    source: where it lies, `s3://…`, `kafka://…` or a folder's whole path, if not where the pipeline's others do.
    key_format: how its producers serialise keys: string (unless given), long, int, double, uuid or bytes.
    offset: the column that holds each record's offset, `_offset` unless given; None if a file's name says that of its
        first record, and the others follow.
    null_keys: what becomes of records without a key: "refuse" (unless given), "drop" or "own task".
    hash: how its producers place keys: "murmur2" (unless given), "java", "opaque" or `package.module:function`.
    offsets: "dense" unless given; of "sparse(N)" ones some may be missing, between two files up to N.
    cast: columns that are read as another type than some files have, by DuckDB's names.
    format: how records are written: "parquet" (unless given), "avro", "json", or in a broker "bytes".
    columns: those of JSON that are of interest, and their types, as it does not say them.
    layout: "time" if files lie in folders of hours or days, and not in those of partitions.
    schema: that of Avro in a broker, as text, if it is not the registry's.
    """

    source: str | PathLike[str] | None
    key_format: str
    offset: str | None
    null_keys: str
    hash: str
    offsets: str
    cast: Mapping[str, str] | None
    format: str
    columns: Mapping[str, str] | None
    layout: str
    schema: str | None


def stream_of(
    name: str,
    key: str,
    partitions: int,
    usual_source: str,
    *,
    table: bool,
    kept: bool = False,
    source: str | PathLike[str] | None = None,
    key_format: str = KeyFormat.STRING,
    offset: str | None = OFFSET,
    null_keys: str = NullKeys.REFUSE,
    hash: str = MURMUR2,
    offsets: str = DENSE,
    cast: Mapping[str, str] | None = None,
    format: str = Format.PARQUET,
    columns: Mapping[str, str] | None = None,
    layout: str = Layout.PARTITION,
    schema: str | None = None,
) -> Stream:
    """The declared stream. Raises Refused, with all findings, and TypeError for unknown options."""
    # Its own check says which words are none.
    words: Any = {"key_format": key_format, "null_keys": null_keys, "format": format, "layout": layout}
    stream = Stream(
        name,
        address_of(fspath(source)) if source else usual_source,
        key,
        partitions,
        offset=OFFSET if offset is None else offset,
        hash=HashName(hash),
        table=table,
        sparse=sparseness(offsets, f"stream {name!r}"),
        cast=cast or UNSET,
        columns=columns or UNSET,
        schema=schema or UNSET,
        counted=offset is None or UNSET,
        kept=kept or UNSET,
        **words,
    )
    return checked(stream)
