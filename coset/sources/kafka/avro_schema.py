"""Avro schemas of values, and their fields as columns: as in landed files, but UUIDs are text."""

from __future__ import annotations

import json
from typing import Any

import fastavro

from coset.sources.formats.avro_types import arrow_schema_of
from coset.sources.formats.landed_file import Unreadable
from partitioning.errors import Refused
from partitioning.kinds import Kind

_THEN = "write values whose schema is a record of fields with one type each, which may be null"


class AvroSchema:
    """The parsed schema of a record, and its fields as columns. Raises Refused, with `where`, if it is invalid."""

    def __init__(self, text: str, where: str) -> None:
        try:
            self.parsed = fastavro.parse_schema(_without_uuids(json.loads(text)))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            said = str(error).partition("\n")[0]
            raise Refused.of(Kind.SCHEMA, f"the schema is no Avro schema: {said}", where, _THEN, schema=where) from None
        try:
            self.columns = arrow_schema_of(self.parsed)
        except Unreadable as wrong:
            raise Refused.of(Kind.SCHEMA, str(wrong), where, _THEN, schema=where) from None


def _without_uuids(schema: Any) -> Any:
    """The schema that reads UUIDs as the text that they are."""
    match schema:
        case list():
            return [_without_uuids(one) for one in schema]
        case dict():
            plain = {name: _without_uuids(value) for name, value in schema.items()}
            return {name: value for name, value in plain.items() if (name, value) != ("logicalType", "uuid")}
        case _:
            return schema
