"""Text that is not UTF-8. Writers of Parquet need not look, nor does DuckDB when it reads.

What it makes of such text is empty, or an error after which its database is of no use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from coset.sources.plain_arrays import is_list, plain_array, with_leaves

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def not_utf8(column: pa.Array) -> Iterator[int]:
    """The rows whose text is not UTF-8, also within lists, maps and structs.

    >>> list(not_utf8(pa.array([b"a", b"\\xff"]).view(pa.string())))
    [1]
    """
    column = _decoded(column)
    kind = _as_bytes(column.type)
    if column.type == kind or _is_ascii(column):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(column.cast(kind).to_pylist()):
            try:
                _text(value, column.type, "strict")
            except UnicodeDecodeError:
                yield row


def columns_not_utf8(rows: pa.Table) -> Iterator[str]:
    """The columns with text that is not UTF-8.

    >>> list(columns_not_utf8(pa.table({"name": pa.array([bytes([255])]).view(pa.string()), "n": [1]})))
    ['name']
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if any(True for chunk in column.chunks for _ in not_utf8(chunk)):
            yield name


def legible(rows: pa.Table) -> pa.Table:
    r"""The rows for people: where a text is not UTF-8, with escapes for the bytes that are not.

    >>> legible(pa.table({"name": pa.array([b"a\xff"]).view(pa.string())})).to_pylist()
    [{'name': 'a\\xff'}]
    """
    for name in columns_not_utf8(rows):
        column = _decoded(rows.column(name).combine_chunks())
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values_of(column), column.type))
    return rows


def values_of(column: pa.Array) -> list[Any]:
    """The values as Python has them, and text that is not UTF-8 as in `legible`."""
    column = _decoded(column)
    written = column.cast(_as_bytes(column.type)).to_pylist()
    return [_text(value, column.type, "backslashreplace") for value in written]


def _text(value: Any, kind: pa.DataType, errors: str) -> Any:
    """A value whose text is bytes, with text. Raises UnicodeDecodeError if `errors` are strict."""
    if value is None:
        return None
    if kind in _BYTES:
        return value.decode(errors=errors)
    if pa.types.is_map(kind):
        return [(_text(key, kind.key_type, errors), _text(item, kind.item_type, errors)) for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: _text(value[field.name], field.type, errors) for field in kind}
    return [_text(each, kind.value_type, errors) for each in value] if is_list(kind) else value


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of text."""
    return with_leaves(kind, lambda kind: _BYTES.get(kind, kind))


def _decoded(column: pa.Array) -> pa.Array:
    """The column without dictionaries."""
    plain = with_leaves(column.type, lambda kind: kind.value_type if pa.types.is_dictionary(kind) else kind)
    return column if column.type == plain else plain_array(column)


def _is_ascii(column: pa.Array) -> bool:
    """Whether a plain column of text surely is: a fiftieth of the work for most texts."""
    if column.type not in (pa.string(), pa.large_string()):
        return False
    data = column.buffers()[2]
    return data is None or not len(data) or int(np.frombuffer(data, np.uint8).max()) < 128
