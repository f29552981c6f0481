"""Avro values, each read by its writer's schema, as the columns that the plan fixes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import fastavro
import pyarrow as pa

from coset.sources.exact_casts import cast_exactly
from coset.sources.formats.landed_file import Unreadable
from coset.sources.kafka.registry import AvroSchema
from coset.sources.kafka.wrong import Wrong, first_wrong
from partitioning.framed_keys import FRAME, framed_id

_ERRORS = (EOFError, ValueError, LookupError, TypeError, OverflowError, StopIteration, Unreadable, pa.ArrowException)


class AvroValues:
    """Reads columns from values that all have one schema, or each the schema whose id it begins with.

    `schema_of` returns the schema of an id, None if there is none. Without ids there is the one `given`. A column that
    a writer did not have is null.
    """

    def __init__(
        self, columns: pa.Schema, schema_of: Callable[[int], AvroSchema | None] | None, given: AvroSchema | None = None
    ) -> None:
        self._columns = columns
        self._schema_of = schema_of
        self._given = given
        self._known: dict[int, AvroSchema | None] = {}

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that does not fit its schema or the plan."""
        kinds = [self._columns.field(name).type for name in names]
        parts: list[list[pa.Array]] = [[pa.nulls(0, kind)] for kind in kinds]
        schemas = [None if value is None else self._schema(number, value) for number, value in enumerate(values)]
        start = 0
        for schema, group in groupby(schemas):
            end = start + sum(1 for _ in group)
            for part, column in zip(parts, self._read(schema, values[start:end], names, kinds, start), strict=True):
                part.append(column)
            start = end
        return [pa.concat_arrays(part) for part in parts]

    def _schema(self, number: int, value: bytes) -> AvroSchema:
        """The schema that the value of that number was written by."""
        if self._given is not None:
            return self._given
        assert self._schema_of is not None
        registered = framed_id(value)
        if registered is None:
            raise Wrong(number, "the value does not begin with the number of a schema of the registry")
        if registered not in self._known:
            self._known[registered] = self._schema_of(registered)
        schema = self._known[registered]
        if schema is None:
            raise Wrong(number, f"the value is written by schema {registered}, which the registry does not have")
        return schema

    def _read(
        self,
        schema: AvroSchema | None,
        run: Sequence[bytes | None],
        names: Sequence[str],
        kinds: Sequence[pa.DataType],
        start: int,
    ) -> list[pa.Array]:
        if schema is None:
            return [pa.nulls(len(run), kind) for kind in kinds]

        def columns(values: Sequence[bytes | None]) -> list[pa.Array]:
            rows = [self._decoded(schema, value) for value in values if value is not None]
            return self.columns_of(schema, rows, names, kinds)

        try:
            return columns(run)
        except _ERRORS:
            wrong = first_wrong(run, lambda value: columns([value]), _ERRORS)
            raise Wrong(
                start + wrong.number, f"the value is not as its schema says: {wrong.what}", wrong.then
            ) from None

    def columns_of(
        self, schema: AvroSchema, rows: Sequence[dict[str, Any]], names: Sequence[str], kinds: Sequence[pa.DataType]
    ) -> list[pa.Array]:
        """These columns of values of one schema."""
        return [_column(schema, rows, name, kind) for name, kind in zip(names, kinds, strict=True)]

    def _decoded(self, schema: AvroSchema, value: bytes) -> dict[str, Any]:
        data = io.BytesIO(value)
        if self._given is None:
            data.seek(FRAME.size)
        row: dict[str, Any] = fastavro.schemaless_reader(data, schema.parsed, None)  # type: ignore[assignment]
        if data.tell() != len(value):
            raise ValueError("bytes are left behind it")
        return row


def _column(schema: AvroSchema, rows: Sequence[dict[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    if name not in schema.columns.names:
        return pa.nulls(len(rows), kind)
    column = pa.array([row[name] for row in rows], schema.columns.field(name).type)
    return column if column.type == kind else cast_exactly(column, kind)
