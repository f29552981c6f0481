"""Record values, by the stream's format: their columns, and their readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from coset.sources.evolution import Evolution, with_casts
from coset.sources.file_columns import FileColumns, UnknownType, arrow_schema, columns_of, typeless, types_named
from coset.sources.formats.change_events import changes_have_values
from coset.sources.formats.json_lines import undeclarable
from coset.sources.kafka.decoded_values import AvroChanges, AvroValues, ChangeValues, JsonValues
from coset.sources.kafka.keys import key_columns_of, read_of_key
from coset.sources.kafka.registry import AvroSchema, Registry
from coset.sources.landed_keys import with_made
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.streams import TIMESTAMP, Column, Format, Stream
from partitioning.values import replace

VALUE = "value"


class Values(Protocol):
    """Reads columns from record values."""

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns, null where there is no value. Raises Wrong at the first invalid value."""


class PlainBytes:
    """The only column is the value itself."""

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        return [pa.array(values, pa.binary()) for _ in names]


def beside_value(stream: Stream) -> frozenset[str]:
    """The columns that a record has beside its value. They hide fields of these names."""
    return frozenset((*read_of_key(stream), TIMESTAMP, stream.offset))


def reader_of(stream: Stream, columns: Sequence[Column]) -> Values:
    """The reader of a stream's values, as these columns. Raises Refused or Unreachable as `columns_of_records`."""
    hidden = beside_value(stream)
    schema = arrow_schema(tuple(column for column in columns if column.name not in hidden))
    match stream.format:
        case Format.JSON:
            return ChangeValues(stream, schema) if stream.changes else JsonValues(schema)
        case Format.AVRO:
            given = AvroSchema(stream.schema, f"stream {stream.name!r}") if stream.schema else None
            schema_of = None if given else Registry(stream.name).schema
            return (
                AvroChanges(stream, schema, schema_of, given)
                if stream.changes
                else AvroValues(schema, schema_of, given)
            )
        case Format.BYTES:
            return PlainBytes()
        case Format.PARQUET:
            raise AssertionError(stream)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of records in SQL's order. Some writers lack those in `lacking`; `untyped` ones are none of them."""

    all: tuple[Column, ...]
    lacking: tuple[str, ...] = ()
    untyped: tuple[str, ...] = ()


def columns_of_records(stream: Stream, known: Sequence[Column]) -> Columns:
    """The columns of the values, and the key, timestamp and offset of each record.

    `known` are the columns of earlier batches. Raises Refused if a declared type or a schema is invalid, or schemas do
    not fit together; Unreachable if the registry does not answer.
    """
    keys = key_columns_of(stream)
    # Rows of a table have none.
    times = () if stream.changes else (Column(TIMESTAMP, "TIMESTAMP WITH TIME ZONE"),)
    beside = (*times, Column(stream.offset, "BIGINT"))
    hidden = beside_value(stream)
    lacking, untyped = tuple[str, ...](), tuple[str, ...]()
    match stream.format:
        case Format.JSON:
            columns = _declared(stream)
        case Format.AVRO if stream.changes:
            columns = _declared(stream)
        case Format.AVRO:
            evolution = _evolved(stream, [column for column in known if column.name not in hidden])
            columns, lacking, untyped = evolution.columns, evolution.lacking, evolution.untyped
        case Format.BYTES:
            columns = (Column(VALUE, "BLOB"),)
        case Format.PARQUET:
            raise AssertionError(stream)
    given = (*keys, *(column for column in columns if column.name not in hidden), *beside)
    return Columns(with_made(stream, given), lacking, untyped)


def _declared(stream: Stream) -> tuple[Column, ...]:
    """The declared columns, with DuckDB's names of their types."""
    types = _types(stream, stream.columns)
    have_values = partial(changes_have_values, typed=stream.format.has_types)
    if stream.changes and (findings := tuple(undeclarable(stream, have_values))):
        raise Refused(*findings)
    return tuple(Column(name, kind) for name, kind in types.items())


def _types(stream: Stream, declared: Mapping[str, str]) -> dict[str, str]:
    """DuckDB's names of declared types. Raises Refused with all that are none."""
    refuse(typeless(stream, declared))
    return types_named(declared)


def _evolved(stream: Stream, known: Sequence[Column]) -> Evolution:
    """The merged columns of all schemas of the topic's values. A tombstone has nulls in all of them."""
    evolution = Evolution(known, (), frozenset(), _types(stream, stream.cast))
    findings = []
    for where, schema in _schemas(stream):
        try:
            columns = columns_of(schema.columns).columns
        except UnknownType as error:
            what = f"{error}, a type that DuckDB does not have"
            findings.append(Finding.of(Kind.DECLARATION, what, where, "write it as another type", schema=where))
        else:
            findings.extend(evolution.add(where, 0, FileColumns(columns, frozenset())))
    # Records are read only once they are planned.
    told = with_casts(findings, evolution, lambda *_: "if it reads all values")
    if findings := [*told, *evolution.untyped_parts()]:
        raise Refused(*(replace(finding, what=f"{stream.name}: {finding.what}") for finding in findings))
    return evolution


def _schemas(stream: Stream) -> Iterator[tuple[str, AvroSchema]]:
    if stream.schema:
        where = f"schema= of stream {stream.name!r}"
        return iter([(where, AvroSchema(stream.schema, where))])
    return Registry(stream.name).versions()
