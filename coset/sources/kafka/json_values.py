"""JSON values, read strictly as the declared columns: nothing is rounded, cut or converted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from coset.sources.kafka.wrong import Wrong, first_wrong

_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException, OverflowError)


class JsonValues:
    """Reads the columns of a schema from JSON objects. A missing field is null, other fields are ignored.

    >>> JsonValues(pa.schema([("delay", pa.int32())])).columns([b'{"delay": 5, "from": "JFK"}', None], ["delay"])[0]
    <pyarrow.lib.Int32Array object at ...>
    [
      5,
      null
    ]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._decode = msgspec.json.Decoder(_object(schema)).decode

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that does not fit its declaration."""
        try:
            rows = [{} if value is None else self._decode(value) for value in values]
            return [pa.array([row.get(name) for row in rows], self._schema.field(name).type) for name in names]
        except _ERRORS:
            wrong = first_wrong(values, self._read, _ERRORS)
            raise Wrong(wrong.number, f"the value is not as declared: {wrong.what}") from None

    def _read(self, value: bytes) -> None:
        row = self._decode(value)
        for field in self._schema:
            pa.array([row.get(field.name)], field.type)


def _object(fields: Sequence[pa.Field]) -> Any:
    """The Python type of an object with these optional fields."""
    return TypedDict("_Object", {field.name: _python(field.type) | None for field in fields}, total=False)  # type: ignore[operator]


def _python(kind: pa.DataType) -> Any:
    """The Python type for an Arrow type."""
    for is_kind, python in _SIMPLE:
        if is_kind(kind):
            return python
    if pa.types.is_struct(kind):
        return _object([kind.field(number) for number in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list[_python(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _python(kind.item_type) | None]  # type: ignore[misc]
    return Any


_SIMPLE = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_date, date),
    (pa.types.is_time, time),
    (pa.types.is_binary, bytes),
)
