"""Lines: rows of a user's own as JSON lines, each as it was written, with its offset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from coset.sources.composite_keys import making_keys
from coset.sources.formats.opening import open_landed
from partitioning.model.composite_key import key_columns, key_parts
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
        if name not in (stream.columns or {}) or (objects and not any(name in known for known in objects)):
            return f"it has no column {name!r}, the key of stream {stream.name!r}"
    return None
