"""The types that columns of JSON lines are declared with, or that values are seen to have, and how JSON writes them."""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.json as pj

from coset.sources.file_columns import arrow_schema, columns_of, type_named
from coset.sources.formats.landed_file import MARK, OFFSET_TYPE, PARTITION
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import quote
from partitioning.model.stream_rules import columns_beside
from partitioning.model.streams import Column, Stream


def declared_schema(stream: Stream) -> pa.Schema:
    """The declared columns and the offset, whose type is implied. All of them can be declared."""
    of_keys = {*(key_parts(stream.key) if stream.key_bytes else ()), *columns_beside(stream)}
    declared = (stream.columns or {}).items()
    columns = [Column(name, type_named(kind) or kind) for name, kind in declared if name not in of_keys]
    if not stream.counted and stream.offset not in (stream.columns or {}):
        columns.append(Column(stream.offset, OFFSET_TYPE))
    return arrow_schema(tuple(columns))


def undeclarable(stream: Stream, holds: Callable[[Column], bool] | None = None) -> Iterator[Finding]:
    """The declared columns whose type does not exist, or of which the stream's records have no values."""
    for name, written in (stream.columns or {}).items():
        kind, where = type_named(written), f"stream {stream.name!r}"
        if kind is None:
            what = f"column {name!r} is declared as {written!r}, which is no type"
            yield Finding.of(Kind.DECLARATION, what, where, "name one of DuckDB's", name=name, written=written)
        elif not (holds or has_values)(Column(name, kind)):
            then = "declare it as VARCHAR, DECIMAL or another type that JSON writes, and convert it in SQL"
            if stream.changes:
                then = "declare it as Debezium writes it, INTEGER[] if these are days, and convert it in SQL"
            what = f"column {name!r} is declared as {kind}, which is not read from {stream.written_as.noun}"
            yield Finding.of(Kind.DECLARATION, what, where, then, name=name, kind=kind)


def written_type(kind: pa.DataType) -> pa.DataType:
    """The type by which a value is parsed: dates, times of day and bytes are text in JSON.

    >>> str(written_type(pa.struct([("day", pa.date32()), ("count", pa.int64())])))
    'struct<day: string, count: int64>'
    """
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(written_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(written_type(field.type)) for field in kind])
    return kind


def converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts values as written to this type. Raises ValueError, as Arrow does, if one does not fit."""
    if column.type == kind:
        return column
    if pa.types.is_binary(kind):
        texts = column.to_pylist()
        return pa.array([None if text is None else b64decode(text, validate=True) for text in texts], kind)
    return column.cast(kind)


def type_of(column: Column) -> pa.DataType | None:
    """The type of a column's values. None if DuckDB or Arrow does not have exactly the one that is declared."""
    try:
        schema = arrow_schema((column,))
    except duckdb.Error:
        return None
    return schema.field(0).type if columns_of(schema).columns == (column,) else None


def has_values(column: Column) -> bool:
    """Whether JSON values of a column are exactly what is declared."""
    kind = type_of(column)
    if kind is None or (pa.types.is_nested(kind) and "binary" in str(kind)):
        return False
    try:
        parsed = pj.ParseOptions(explicit_schema=pa.schema([(column.name, written_type(kind))]))
        table = pj.read_json(pa.BufferReader(b"{}\n"), parse_options=parsed)
        converted(table.column(0).combine_chunks(), kind)
    except pa.ArrowNotImplementedError:
        return False
    return True


def json_columns(files: Iterable[Sequence[Mapping[str, object]]]) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of JSON objects with the types that hold all of their values, and why others have none."""
    values = defaultdict[str, list[object]](list)
    for lines in files:
        for line in lines:
            for name, value in line.items():
                if name != MARK:
                    values[name].append(value)
    columns, left_out = dict[str, str](), dict[str, str]()
    for name, found in values.items():
        kind = _json_type(found)
        if kind is None:
            left_out[name] = "it is null in all records seen, or of several types"
        elif name.lower() in {each.lower() for each in columns} or name.lower() == PARTITION or not name:
            left_out[name] = "SQL does not tell its name from another's"
        elif any(undeclarable(Stream("it", "", "", 1, columns={name: kind}))):
            left_out[name] = f"{kind} is not read from JSON"
        else:
            columns[name] = kind
    return columns, left_out


def _json_type(values: Iterable[object]) -> str | None:
    """DuckDB's type of values in JSON; None if none of its types has them all, or none is there.

    >>> _json_type([1, None]), _json_type([1, 0.5]), _json_type([{"a": "x"}, {"b": [True]}]), _json_type([1, "x"])
    ('BIGINT', 'DOUBLE', 'STRUCT("a" VARCHAR, "b" BOOLEAN[])', None)
    """
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if kinds == {int}:
        fits = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in there)
        return "BIGINT" if fits else "DECIMAL(38,0)"
    if kinds == {dict}:
        return _struct([value for value in there if isinstance(value, dict)])
    if kinds == {list}:
        inner = _json_type(each for value in there if isinstance(value, list) for each in value)
        return f"{inner}[]" if inner else None
    if kinds in ({float}, {int, float}):
        return "DOUBLE"
    return {bool: "BOOLEAN", str: "VARCHAR"}.get(kinds.pop()) if len(kinds) == 1 else None


def _struct(values: Sequence[Mapping[str, object]]) -> str | None:
    names = dict.fromkeys(name for value in values for name in value)
    fields = {name: _json_type(value.get(name) for value in values) for name in names}
    known = [f"{quote(name)} {kind}" for name, kind in fields.items() if kind]
    return f"STRUCT({', '.join(known)})" if known else None
