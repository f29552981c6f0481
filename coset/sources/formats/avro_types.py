"""Arrow types for Avro's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from coset.sources.formats.landed_file import Unreadable

_OTHERWISE = "land the column in another type"
_MOST_DIGITS = 38

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.uuid(),
}


def arrow_schema_of(written: Any) -> pa.Schema:
    """The columns of a parsed writer's schema. Raises Unreadable for types that SQL does not have."""
    if not isinstance(written, dict) or written.get("type") != "record":
        what = f"its records are {_name(written)}, and records with columns are needed"
        raise Unreadable(what, "land records, by a transformation HoistField for instance")
    types = _Types()
    return pa.schema([types.field(field["name"], field["name"], field["type"]) for field in written["fields"]])


class _Types:
    """The types of a schema. Named types can be referred to."""

    def __init__(self) -> None:
        # None while the type is being built.
        self._named: dict[str, pa.DataType | None] = {}

    def field(self, name: str, column: str, written: Any) -> pa.Field:
        """A field, `column` of whose record is that of the file."""
        branches = written if isinstance(written, list) else [written]
        others = [branch for branch in branches if _name(branch) != "null"]
        if not others:
            return pa.field(name, pa.null())
        if len(others) != 1:
            listed = " and ".join(map(_name, others))
            raise Unreadable(f"column {column!r} may be {listed}, which is no type of SQL's", _OTHERWISE)
        return pa.field(name, self._type(column, others[0]), nullable=len(branches) > 1)

    def _type(self, column: str, written: Any) -> pa.DataType:
        if isinstance(written, str):
            return _PLAIN[written] if written in _PLAIN else self._known(column, written)
        kind = written["type"]
        if not isinstance(kind, str):
            return self._type(column, kind)
        if written.get("logicalType") == "decimal":
            return _decimal(column, written)
        if (kind, written.get("logicalType")) in _LOGICAL:
            return _LOGICAL[kind, written["logicalType"]]
        match kind:
            case "array":
                return pa.list_(self.field("item", column, written["items"]))
            case "map":
                return pa.map_(pa.string(), self.field("value", column, written["values"]))
            case "enum" | "fixed":
                self._named[written["name"]] = pa.string() if kind == "enum" else pa.binary()
                return self._named[written["name"]]
            case "record":
                self._named[written["name"]] = None
                fields = [self.field(field["name"], column, field["type"]) for field in written["fields"]]
                self._named[written["name"]] = pa.struct(fields)
                return self._named[written["name"]]
            case _:
                return self._type(column, kind)

    def _known(self, column: str, name: str) -> pa.DataType:
        kind = self._named.get(name)
        if kind is None:
            raise Unreadable(f"column {column!r} holds records {name} within themselves", _OTHERWISE)
        return kind


def _decimal(column: str, written: Any) -> pa.DataType:
    """A decimal. Connect writes 64 digits if it knows no precision; values with more than ours are refused."""
    scale = written.get("scale", 0)
    if scale > _MOST_DIGITS:
        raise Unreadable(f"column {column!r} has {scale} digits behind the point", _OTHERWISE)
    return pa.decimal128(min(written["precision"], _MOST_DIGITS), scale)


def _name(written: Any) -> str:
    if isinstance(written, list):
        return " or ".join(map(_name, written))
    return str(written.get("type") if isinstance(written, dict) else written)
