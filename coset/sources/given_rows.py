"""Given rows: what is in a file of a user's own, which is to land. Lines: its rows as JSON lines, each as it was
written, with its offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from coset.sources.file_columns import cast_exactly
from coset.sources.formats.json_lines import declared_schema
from coset.sources.formats.landed_file import Unreadable
from coset.sources.formats.opening import open_landed
from coset.sources.formats.parquet import read_parquet
from coset.sources.landed_keys import making_keys
from coset.sources.plain_arrays import columns_not_utf8, plain_type
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Stream


def split(text: bytes) -> list[bytes]:
    """The lines that hold something.

    >>> split(b'{"n": 1}\\r\\n\\n{"n":\\n')
    [b'{"n": 1}', b'{"n":']
    """
    return [line for each in text.split(b"\n") if (line := each.strip())]


def lines_of(rows: pa.Table) -> list[bytes]:
    """Rows as Connect writes them, but for days, times and decimals, which are as `columns=` declares them."""
    encoder = msgspec.json.Encoder(decimal_format="number")
    return [encoder.encode(row) for row in rows.to_pylist()]


def keys_of(stream: Stream, lines: Sequence[bytes]) -> pa.ChunkedArray:
    """The key of each line, as a task will read it; null where a stream sets the line aside.

    Raises Unreadable if a line, or a value in it, is not as the stream declares it.
    """
    with pa.BufferReader(numbered(stream, lines, 0)) as source:
        file = open_landed(stream, source, 0)
        facts, columns = file.facts(), key_columns(stream.key)
        kind = pa.string() if key_parts(stream.key) else file.schema.field(stream.key).type
        read = list(file.batches([*columns, stream.offset], 0, len(lines)))
    assert facts.rows == len(lines), (facts, len(lines))
    if not key_parts(stream.key):
        return pa.chunked_array([each.column(stream.key) for each in read], kind)
    with making_keys(columns) as made_of:
        return pa.chunked_array(map(made_of, read), kind)


def numbered(stream: Stream, lines: Sequence[bytes], start: int, **more: str) -> bytes:
    """A file of these lines, the first of which has the offset `start`; `more` goes into the first that can take it.

    What is no object stays as it is: its offset is that of the record before, and one.
    """
    return b"".join(line + b"\n" for line in _numbered(stream, lines, start, dict(more)))


def _numbered(stream: Stream, lines: Sequence[bytes], start: int, more: dict[str, str]) -> Iterator[bytes]:
    for offset, line in enumerate(lines, start):
        known = _object(line)
        if known is None:
            yield line
            continue
        added = ({} if stream.counted else {stream.offset: offset}) | more
        more = {}
        if not added:
            yield line
            continue
        # The text is kept: numbers have more digits than Python's.
        yield line[:-1].rstrip() + (b", " if known else b"") + json.dumps(added).encode()[1:]


def _object(line: bytes) -> dict[str, object] | None:
    """The object in a line. None if there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def why_not(stream: Stream, lines: Sequence[bytes]) -> str | None:
    """Why these cannot be records of the stream. None if they can."""
    objects = [known for line in lines if (known := _object(line)) is not None]
    if any(stream.offset in known for known in objects):
        return f"it has a column {stream.offset!r}, where offsets are to be written"
    # Of changes, the row in them has the key.
    for name in () if stream.changes else key_columns(stream.key):
        if name not in stream.columns or (objects and not any(name in known for known in objects)):
            return f"it has no column {name!r}, the key of stream {stream.name!r}"
    return None


# Arrow types by column.
Kinds = Mapping[str, pa.DataType]

KEY_TYPES = {
    KeyFormat.STRING: pa.string(),
    KeyFormat.UUID: pa.string(),
    KeyFormat.LONG: pa.int64(),
    KeyFormat.INT: pa.int32(),
    KeyFormat.DOUBLE: pa.float64(),
    KeyFormat.BYTES: pa.binary(),
}
_JSON_LINES = (".json", ".jsonl", ".ndjson")
# A text with zeros before it, as 00501, is no number.
_ZEROS = r"^\s*[+-]?0[0-9]"
# A double holds 15 digits of any number, and 17 of those that it wrote.
_MANY_DIGITS = r"^\s*[+-]?([0-9]{20}|[0-9]*\.?[0-9]*[1-9](\.?[0-9]){17})"
_READ = "CSV with a header (.csv), JSON lines (.json, .jsonl, .ndjson) or Parquet (.parquet)"
_WRITE_AS_TEXT = 'write it in quotes, or declare format="json" and its type in columns='
_NAME_ANOTHER = f"name a file of {_READ} that has the stream's key"


def rows_in(file: Path, stream: Stream, landed: Kinds) -> pa.Table:
    """The rows of a file, by the ending of its name. Texts get the types of landed columns, where they fit.

    Raises Refused if the file cannot be read.
    """
    try:
        match file.suffix:
            case ".csv":
                return _of_text(lambda kinds: _csv(file, stream, kinds), landed)
            case ending if ending in _JSON_LINES:
                _check_digits(file)
                return _of_text(lambda kinds: _json_lines(file, kinds), landed)
            case ".parquet":
                with pa.OSFile(str(file)) as source:
                    return checked(read_parquet(source), str(file))
            case _:
                raise unreadable(str(file), f"its name ends in {file.suffix or 'nothing'}")
    except (OSError, pa.ArrowException, Unreadable) as error:
        then = f"correct or write anew what is wrong in the file, or name another, of {_READ}"
        # Arrow has OSError for some damaged files too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            then = "name a file that is there, and that you may read"
        raise unreadable(str(file), str(error).splitlines()[0], then) from error


def checked(rows: pa.Table, named: str) -> pa.Table:
    """The rows, in types by which they can be sorted into partitions. Raises Refused if a text in them is not UTF-8."""
    for place, field in enumerate(rows.schema):
        kind = plain_type(field.type)
        if kind != field.type:
            column = pa.chunked_array([cast_exactly(chunk, kind) for chunk in rows.column(place).chunks], kind)
            rows = rows.set_column(place, field.with_type(kind), column)
    for column in columns_not_utf8(rows):
        raise unreadable(named, f"column {column!r} has text that is not UTF-8", "write it as UTF-8, or as bytes")
    return rows


def lines_in(file: Path, stream: Stream) -> list[bytes]:
    """The rows of a file as JSON lines: lines as they are, others with the types that the stream declares.

    Raises Refused if the file cannot be read.
    """
    if file.suffix in _JSON_LINES:
        try:
            return split(file.read_bytes())
        except OSError as error:
            raise unreadable(str(file), str(error)) from error
    schema = declared_schema(stream)
    return lines_of(rows_in(file, stream, dict(zip(schema.names, schema.types, strict=True))))


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
        # Values that do not fit are told as a difference of columns.
        return rows


def _csv(file: Path, stream: Stream, kinds: Kinds) -> pa.Table:
    """The rows of a CSV. A column is text if not all of its numbers would keep their digits."""
    key = {} if key_parts(stream.key) else {stream.key: KEY_TYPES[stream.key_format]}

    def read(kinds: Kinds, only: Sequence[str] | None = None) -> pa.Table:
        options = pa.csv.ConvertOptions(
            column_types=kinds, include_columns=only, null_values=[""], strings_can_be_null=True
        )
        return pa.csv.read_csv(file, convert_options=options)

    rows = read({**kinds, **key})
    unfit = {
        field.name: _ZEROS if pa.types.is_integer(field.type) else f"{_ZEROS}|{_MANY_DIGITS}"
        for field in rows.schema
        if field.name not in key and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    }
    texts = read(dict.fromkeys(unfit, pa.string()), list(unfit)) if unfit else rows.select([])
    inexact = [name for name in unfit if pc.any(pc.match_substring_regex(texts[name], unfit[name])).as_py()]
    return read({**kinds, **key, **dict.fromkeys(inexact, pa.string())}) if inexact else rows


def _json_lines(file: Path, kinds: Kinds) -> pa.Table:
    return pa.json.read_json(file, parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(list(kinds.items()))))


def _check_digits(file: Path) -> None:
    """Raises Refused for a number that would lose digits."""

    def check(text: str) -> None:
        whole = re.fullmatch("-?[0-9]{1,19}", text) and -(2**63) <= int(text) < 2**63
        if not whole and re.match(_MANY_DIGITS, text):
            raise unreadable(str(file), f"{text} has more digits than a double holds", _WRITE_AS_TEXT)

    for line in split(file.read_bytes()):
        # The reader tells of lines that are no JSON.
        with suppress(ValueError):
            json.loads(line, parse_int=check, parse_float=check)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type with times as DuckDB's TIMESTAMP. Arrow guesses by their digits, and Parquet has no seconds."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.timestamp("us")
    if pa.types.is_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_microseconds(field.type)) for field in kind])
    return kind


def unreadable(named: str, why: str, then: str = _NAME_ANOTHER) -> Refused:
    """What is wrong with rows that errors call as they are `named`."""
    return Refused.of(Kind.LOCAL_FILE, f"the rows cannot be read: {why}", named, then, file=named)
