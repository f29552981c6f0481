"""Avro schemas: what their fields are as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from partitioning.errors import Finding, Refused

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MOST_DIGITS = 38
_THEN = "write values whose schema is a record of fields with one type each, which may be null"


class AvroSchema:
    """A record's schema, as it is parsed, and its fields as columns. Raises Refused, with `where`, if it is none."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        try:
            named: dict[str, Any] = {}
            self.parsed = fastavro.parse_schema(_without_uuids(json.loads(text)), named)
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            said = str(error).partition("\n")[0]
            raise Refused(Finding(f"the schema is no Avro schema: {said}", where, _THEN)) from None
        if not isinstance(self.parsed, Mapping) or self.parsed.get("type") != "record":
            raise self._refused("the schema is not of a record")
        self._named = named
        fields = self.parsed["fields"]
        self.columns = pa.schema([self._field(field["name"], field["type"], ()) for field in fields])

    def _field(self, name: str, kind: Any, within: tuple[str, ...]) -> pa.Field:
        kinds = kind if isinstance(kind, list) else [kind]
        others = [one for one in kinds if one != "null"]
        if len(others) != 1:
            raise self._refused(f"field {name!r} has {len(others)} types beside null")
        return pa.field(name, self._type(name, others[0], within), nullable="null" in kinds)

    def _type(self, name: str, kind: Any, within: tuple[str, ...]) -> pa.DataType:
        if isinstance(kind, str):
            if kind in _SIMPLE:
                return _SIMPLE[kind]
            if kind in within:
                raise self._refused(f"field {name!r} holds itself")
            return self._type(name, self._named[kind], (*within, kind))
        if (logical := kind.get("logicalType")) == "decimal":
            if kind["precision"] > _MOST_DIGITS:
                raise self._refused(f"field {name!r} has more than {_MOST_DIGITS} digits")
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        return self._complex(name, kind, within)

    def _complex(self, name: str, kind: Mapping[str, Any], within: tuple[str, ...]) -> pa.DataType:
        inner = (*within, kind["name"]) if "name" in kind else within
        match kind["type"]:
            case "record":
                return pa.struct([self._field(field["name"], field["type"], inner) for field in kind["fields"]])
            case "array":
                return pa.list_(self._field("item", kind["items"], within))
            case "map":
                return pa.map_(pa.string(), self._field("value", kind["values"], within))
            case other:
                return self._type(name, other, within)

    def _refused(self, what: str) -> Refused:
        return Refused(Finding(what, self._where, _THEN))


def _without_uuids(schema: Any) -> Any:
    """The schema, by which UUIDs are read as the text that they are written as."""
    match schema:
        case list():
            return [_without_uuids(one) for one in schema]
        case dict():
            plain = {name: _without_uuids(value) for name, value in schema.items()}
            return {name: value for name, value in plain.items() if (name, value) != ("logicalType", "uuid")}
        case _:
            return schema
