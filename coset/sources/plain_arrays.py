"""Plain arrays: columns in the types that all functions of Arrow and DuckDB take, whatever a file's schema says.

A file may call a text `string_view`, and a list `list_view`. Functions as `take` have no kernel for such a type, and
PyArrow's own cast of a `list_view` makes lists that read beyond their buffers.

Text that is not UTF-8. Writers of Parquet need not look, nor does DuckDB when it reads. What it makes of such text is
empty, or an error after which its database is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SAME_IN_SQL = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.bool8(): pa.bool_(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    **{pa.duration(unit): pa.duration("us") for unit in ("s", "ms", "ns")},
    pa.float16(): pa.float32(),
}

# A decimal of SQL's has so many digits at most.
_DIGITS = 38
_VIEWS = {pa.lib.Type_LIST_VIEW: pa.list_view, pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view}

Leaf = Callable[[Sequence[pa.Array]], pa.Array]
Named = Callable[[pa.Field], pa.Field | None]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that stands for all types of Arrow's which are the same in SQL, but for large ones.

    >>> str(plain_type(pa.list_view(pa.dictionary(pa.int8(), pa.string_view()))))
    'list<item: large_string>'
    >>> str(plain_type(pa.timestamp("ms", "Europe/Berlin"))), str(plain_type(pa.timestamp("ms")))
    ('timestamp[us, tz=UTC]', 'timestamp[ms]')
    """
    return with_leaves(kind, _plain)


def plain_array(column: pa.Array) -> pa.Array:
    """The same values without views and dictionaries, so that Arrow can cast them. Of lists Arrow would cast the values
    of other rows, too, of which the column is a part."""
    as_it_is = column.type == with_leaves(column.type, _laid_out) and not pa.types.is_nested(column.type)
    return column if as_it_is else rebuilt([column], _as_laid_out)


def bare_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns without what is written beside them: DuckDB would go by it, and find GEOMETRY in bytes.

    >>> said = {"ARROW:extension:name": "geoarrow.wkb"}
    >>> column = pa.field("g", pa.list_(pa.field("item", pa.binary(), metadata=said)), metadata=said)
    >>> bare_schema(pa.schema([column], said)).equals(pa.schema([("g", pa.list_(pa.binary()))]), check_metadata=True)
    True
    """
    return pa.schema([pa.field(field.name, _bare(field.type), field.nullable) for field in schema])


def bare(records: pa.RecordBatch) -> pa.RecordBatch:
    """The same records under a bare schema, which is what DuckDB goes by."""
    return pa.RecordBatch.from_arrays(records.columns, schema=bare_schema(records.schema))


def texts_of_uuids(column: pa.Array) -> pa.Array:
    """The same values with text in place of UUIDs, which Arrow does not cast."""
    return rebuilt([column], _as_text)


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with another one for each that is not nested. Lists are no views."""
    if pa.types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, leaf), with_leaves(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, leaf)) for field in kind])
    if is_list(kind):
        return _list_of(kind, with_leaves(kind.value_type, leaf))
    return leaf(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any kind."""
    of_size = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list_view(kind)
    return bool(of_size or _is_large(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether values have parts."""
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind) or is_list(kind))


def rebuilt(columns: Sequence[pa.Array], leaf: Leaf, named: Named = lambda field: field) -> pa.Array:
    """A column made of some that have the same lists, maps and structs, by what `leaf` makes of their other parts. A
    field of a struct is then as `named` says; if that says None, it is left out."""
    column, kind = columns[0], columns[0].type
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        kept = [(place, field) for place, field in enumerate(map(named, kind)) if field is not None]
        if not kept:
            return pa.array([{} if there else None for there in column.is_valid().to_pylist()], pa.struct([]))
        parts = [rebuilt([each.field(place) for each in columns], leaf, named) for place, _ in kept]
        fields = [field.with_type(part.type) for (_, field), part in zip(kept, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if not (is_list(kind) or pa.types.is_map(kind)):
        return leaf(columns)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        values = rebuilt([each.values.slice(each.offset * size, len(each) * size) for each in columns], leaf, named)
        return pa.FixedSizeListArray.from_arrays(values, type=_list_of(kind, values.type), mask=mask)
    if pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        keys = rebuilt([each.keys.slice(first, last - first) for each in columns], leaf, named)
        items = rebuilt([each.items.slice(first, last - first) for each in columns], leaf, named)
        return pa.MapArray.from_arrays(pc.subtract(column.offsets, first), keys, items, mask=mask)
    values = rebuilt([each.flatten() for each in columns], leaf, named)
    ends = np.cumsum([0, *pc.fill_null(pc.list_value_length(column), 0).to_numpy()])
    arrays: Any = pa.LargeListArray if _is_large(kind) else pa.ListArray
    offsets = pa.array(ends, pa.int64() if _is_large(kind) else pa.int32())
    return arrays.from_arrays(offsets, values, _list_of(kind, values.type), mask=mask)


def _bare(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_bare(kind.key_type), _bare(kind.item_type), kind.keys_sorted)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _bare(field.type), field.nullable) for field in kind])
    if not is_list(kind):
        return kind
    field = kind.value_field.with_type(_bare(kind.value_type)).remove_metadata()
    return _VIEWS[kind.id](field) if kind.id in _VIEWS else _list_of(kind, field)


def _list_of(kind: pa.DataType, value: pa.DataType | pa.Field) -> pa.DataType:
    """A list of other values."""
    field = value if isinstance(value, pa.Field) else kind.value_field.with_type(value)
    if _is_large(kind):
        return pa.large_list(field)
    return pa.list_(field, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = _laid_out(kind)
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", "UTC")
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal(kind) and kind.precision <= _DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    return _SAME_IN_SQL.get(kind, kind)


def _laid_out(kind: pa.DataType) -> pa.DataType:
    """The type without a view or a dictionary, and what an extension stores that is no type of SQL's."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and kind not in (pa.uuid(), pa.json_(), pa.bool8()):
        return with_leaves(kind.storage_type, _laid_out)
    return _SAME_IN_SQL[kind] if kind in (pa.string_view(), pa.binary_view()) else kind


def _as_laid_out(parts: Sequence[pa.Array]) -> pa.Array:
    (column,) = parts
    if pa.types.is_dictionary(column.type):
        return plain_array(column.dictionary_decode())
    if isinstance(column, pa.ExtensionArray) and column.type != _laid_out(column.type):
        return plain_array(column.storage)
    return column.cast(_laid_out(column.type))


def _as_text(parts: Sequence[pa.Array]) -> pa.Array:
    (column,) = parts
    if column.type != pa.uuid():
        return column
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


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
