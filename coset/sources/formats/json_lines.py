"""JSON lines: one object for each line, also of an array, perhaps compressed. Nothing gives the number of lines, so
planning reads them all. The types that columns of JSON lines have.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from coset.sources.file_columns import arrow_schema, columns_of, type_named
from coset.sources.formats.compressed import decompressed
from coset.sources.formats.landed_file import (
    LAND_AGAIN,
    MARK,
    OFFSET_TYPE,
    PARTITION,
    FileFacts,
    Unreadable,
    UnusableRecord,
    has_offsets,
)
from coset.sources.reader import RAW, WHY
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import quote
from partitioning.model.stream_rules import columns_beside
from partitioning.model.streams import Column, Stream


def declared_schema(stream: Stream) -> pa.Schema:
    """The declared columns and the offset, whose type is implied. All of them can be declared."""
    of_keys = {*(key_parts(stream.key) if stream.key_bytes else ()), *columns_beside(stream)}
    declared = stream.columns.items()
    columns = [Column(name, type_named(kind) or kind) for name, kind in declared if name not in of_keys]
    if not stream.counted and stream.offset not in stream.columns:
        columns.append(Column(stream.offset, OFFSET_TYPE))
    return arrow_schema(tuple(columns))


def undeclarable(stream: Stream, holds: Callable[[Column], bool] | None = None) -> Iterator[Finding]:
    """The declared columns whose type does not exist, or of which the stream's records have no values."""
    for name, written in stream.columns.items():
        kind, where = type_named(written), f"stream {stream.name!r}"
        if kind is None:
            what = f"column {name!r} is declared as {written!r}, which is no type"
            yield Finding.of(Kind.DECLARATION, what, where, "name one of DuckDB's", name=name, written=written)
        elif not (holds or has_values)(Column(name, kind)):
            then = "declare it as VARCHAR, DECIMAL or another type that JSON writes, and convert it in SQL"
            if stream.changes:
                then = "declare it as Debezium writes it, INTEGER[] if these are days, and convert it in SQL"
            what = f"column {name!r} is declared as {kind}, which is not read from {stream.format.noun}"
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


_CORRECT = "land the file again with that line corrected"
_DECLARE = f"{_CORRECT}, or declare the column as it is written"
_SET_ASIDE = '; or let the stream set such records aside: bad_records="set aside up to 10"'
# How many bytes are fetched and parsed at once.
_BLOCK = 4 << 20
_LONGEST_LINE = 64 << 20
_ARRAY = b"[\n"
_NULL = re.compile(rb"^[ \t\r]*null[ \t\r]*$", re.MULTILINE)
# A column that no record has, to see whether a line is an object at all.
_NO_COLUMN = pa.schema([("\0", pa.null())])

# Makes the records of complete lines, with the columns of a schema. Raises ValueError, as Arrow does.
Parse = Callable[[bytes, pa.Schema], pa.RecordBatch]


class JsonRows:
    """A file of JSON lines with the columns of a schema, read block by block. Other columns are ignored."""

    def __init__(self, source: pa.NativeFile, offset: str, schema: pa.Schema, parse: Parse | None = None) -> None:
        self.schema = schema
        self.parse = parse or parsed
        self._source = source
        self.offset = offset

    def facts(self) -> FileFacts:
        """Reads all lines with all columns, so that no file with a wrong value is planned."""
        columns = columns_of(self.schema)
        rows, missing, firsts, lasts = 0, 0, list[int](), list[int]()
        known = has_offsets(columns, self.offset)
        for records in self.batches(self.schema.names, 0, 0):
            rows += len(records)
            if known:
                offsets = records.column(self.offset)
                missing += offsets.null_count
                bounds = pc.min_max(offsets)
                if bounds["min"].is_valid:
                    firsts.append(bounds["min"].as_py())
                    lasts.append(bounds["max"].as_py())
        if missing or not firsts:
            return FileFacts(columns, rows, without_offset=missing)
        return FileFacts(columns, rows, min(firsts), max(lasts))

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([self.schema.field(name) for name in columns if name in self.schema.names])
        line = 1
        for block in self.blocks():
            try:
                records = self.parse(block, wanted)
            except (pa.ArrowException, ValueError) as error:
                found = unreadable(block, wanted, line, error, self.parse)
                then = found.then if isinstance(error, UnusableRecord) else f"{found.then}{_SET_ASIDE}"
                raise Unreadable(str(found), then) from error
            if len(records):
                yield records
            line += block.count(b"\n")

    def blocks(self) -> Iterator[bytes]:
        """The file in blocks of whole lines. Of an array with an object a line, they are those of its objects."""
        blocks = self._lines()
        first = next(blocks, b"")
        yield from _objects(chain([first], blocks)) if first.startswith(_ARRAY) else chain([first], blocks)

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        with decompressed(self._source, _BLOCK) as file:
            while data := file.read(_BLOCK):
                lines, newline, tail = data.rpartition(b"\n")
                if newline:
                    yield rest + lines + newline
                    rest = tail
                else:
                    rest += data
                if len(rest) > _LONGEST_LINE:
                    raise Unreadable(f"a line is longer than {_LONGEST_LINE >> 20} MiB", "land it as several records")
        if rest:
            yield rest


def _objects(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of an array without its brackets, and without the commas that end all of them but the last."""
    before, objects, commas = b"", 0, 0
    for number, block in enumerate(chain(blocks, [b""])):
        now, before = before, block if number else block.replace(_ARRAY, b"\n", 1)
        if not block:
            if not now.rstrip().endswith(b"]"):
                raise Unreadable("the file is truncated: its array does not end", LAND_AGAIN)
            now = now.rstrip()[:-1]
        commas += now.count(b",\n")
        now = now.replace(b",\n", b"\n")
        objects += sum(1 for line in now.split(b"\n") if line.strip())
        yield now
    if commas != max(0, objects - 1):
        raise Unreadable(f"its array has {commas} commas between {objects} objects", LAND_AGAIN)


def parsed(block: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The records of complete lines. Raises ValueError, as Arrow does, if one is not as declared."""
    table = as_written(block, pa.schema([field.with_type(written_type(field.type)) for field in schema]))
    columns = [converted(table.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_written(block: bytes, written: pa.Schema) -> pa.RecordBatch:
    """The records of complete lines, in types that JSON has. Raises ValueError, as Arrow does, if one has others."""
    block.isascii() or block.decode()
    # Arrow accepts it in some places, and crashes on it in the first line.
    if _NULL.search(block):
        raise ValueError("it is null")
    if not block.strip():
        return pa.RecordBatch.from_pylist([], schema=written)
    reading = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    parsing = pj.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
    table = pj.read_json(pa.BufferReader(block), reading, parsing)
    if len(table) != block.count(b"\n") and len(table) != sum(1 for line in block.split(b"\n") if line.strip()):
        raise ValueError("a line has to hold one object")
    return pa.RecordBatch.from_arrays([table.column(name).combine_chunks() for name in written.names], schema=written)


def unreadable(block: bytes, schema: pa.Schema, line: int, error: Exception, parse: Parse | None = None) -> Unreadable:
    """The error in the first unreadable line of a block, and its column."""
    parse = parse or parsed
    lines = block.removesuffix(b"\n").split(b"\n")
    while len(lines) > 1:
        half = lines[: len(lines) // 2]
        if _said(b"\n".join(half), schema, parse) is None:
            line += len(half)
            lines = lines[len(half) :]
        else:
            lines = half
    if (said := _said(lines[0], _NO_COLUMN, parsed)) is not None:
        return Unreadable(f"line {line:,} is no JSON object: {said}", _CORRECT)
    try:
        parse(lines[0], schema)
    except UnusableRecord as unusable:
        return Unreadable(f"line {line:,}: {unusable}", unusable.then)
    except (pa.ArrowException, ValueError):
        pass
    for field in schema:
        if (said := _said(lines[0], pa.schema([field]), parse)) is not None:
            kind = columns_of(pa.schema([field])).columns[0].type
            return Unreadable(f"line {line:,}: column {field.name!r} is not {kind}: {said}", _DECLARE)
    return Unreadable(f"line {line:,}: {error}", _CORRECT)


def _said(line: bytes, schema: pa.Schema, parse: Parse) -> str | None:
    """The error in a line. None if there is none."""
    try:
        parse(line, schema)
    except (pa.ArrowException, ValueError) as error:
        return str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
    return None


@dataclass(frozen=True, slots=True)
class _Bad:
    """A line that cannot be read, and why."""

    line: bytes
    error: Unreadable


class UsableLines(JsonRows):
    """A file of JSON lines. All declared columns count, whichever are asked for, so that all readers agree.

    If a line does not say its offset, it has the one that follows the record before; that of the first line is `first`.
    """

    def __init__(
        self,
        source: pa.NativeFile,
        offset: str,
        schema: pa.Schema,
        first: int,
        *,
        dense: bool,
        parse: Parse | None = None,
    ) -> None:
        super().__init__(source, offset, schema, parse)
        self._following = first
        self._dense = dense

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        names = [name for name in dict.fromkeys(columns) if name in self.schema.names]
        schema = pa.schema([*(self.schema.field(name) for name in names), WHY, RAW])
        following, line = self._following, 1
        for block in self.blocks():
            there = list[pa.RecordBatch]()
            for run in self._runs(block.removesuffix(b"\n").split(b"\n"), line):
                if isinstance(run, _Bad):
                    at = self._offset_of(run, following)
                    values = {self.offset: at, WHY.name: str(run.error), RAW.name: run.line}
                    there.append(pa.RecordBatch.from_pylist([values], schema))
                    following = at + 1
                    continue
                if self.offset in self.schema.names:
                    following = run.column(self.offset)[-1].as_py() + 1
                good = [run.column(name) for name in names] + [pa.nulls(len(run), field.type) for field in (WHY, RAW)]
                there.append(pa.RecordBatch.from_arrays(good, schema=schema))
            if there:
                yield from pa.Table.from_batches(there).combine_chunks().to_batches()
            line += block.count(b"\n")

    def _runs(self, lines: Sequence[bytes], first: int) -> Iterator[pa.RecordBatch | _Bad]:
        """The records of lines, of which `first` is the number of the first."""
        block = b"\n".join(lines) + b"\n"
        try:
            records = self.parse(block, self.schema)
            if self.offset in self.schema.names and records.column(self.offset).null_count:
                raise ValueError(f"there is no {self.offset!r}")
        except (pa.ArrowException, ValueError) as error:
            if len(lines) == 1:
                yield _Bad(lines[0], unreadable(block, self.schema, first, error, self.parse))
                return
            half = len(lines) // 2
            yield from self._runs(lines[:half], first)
            yield from self._runs(lines[half:], first + half)
        else:
            if len(records):
                yield records

    def _offset_of(self, bad: _Bad, following: int) -> int:
        """The offset of a line that cannot be read. Raises its error if nobody knows."""
        if self.offset not in self.schema.names:
            return following
        try:
            said = self.parse(bad.line + b"\n", pa.schema([self.schema.field(self.offset)])).column(0)[0].as_py()
        except (pa.ArrowException, ValueError):
            said = None
        if isinstance(said, int):
            return said
        if not self._dense:
            what = f"{bad.error}; nor does it say its offset, so it cannot be set aside"
            raise Unreadable(what, bad.error.then)
        return following
