"""Change events as sinks land them in Avro and in Parquet: what Connect's AvroData makes of their schemas and values.

Its real answers are in tests/vectors/debezium.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.formats.avro import AvroRows

Said = Mapping[str, Any]
_PLAIN = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_LOGICAL = {"Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis", "Decimal": "decimal"}


def files_of(events: Sequence[tuple[int, Said]], form: str) -> Iterator[tuple[int, bytes]]:
    """Files of events by their offsets, one for each schema in turn, and the first offset of each."""
    said = [(offset, *_said(event, form)) for offset, event in events]
    for _, run in groupby(said, key=lambda each: each[1]):
        rows = list(run)
        schema = avro_schema(rows[0][1])
        values = [_value(rows[0][1], {**value, "_offset": offset}) for offset, _, value in rows]
        content = io.BytesIO()
        fastavro.writer(content, fastavro.parse_schema(schema), values)
        data = content.getvalue()
        yield rows[0][0], _parquet(data, schema) if "parquet" in form else data


def message_of(event: Said, form: str) -> tuple[Any, bytes]:
    """The schema of an event, and its value by that, as in a broker."""
    said, value = _said(event, form)
    said = {**said, "fields": said["fields"][:-1]}
    schema, content = avro_schema(said), io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), _value(said, value))
    return schema, content.getvalue()


def _said(event: Said, form: str) -> tuple[Said, dict[str, Any]]:
    """The schema and the value of an event, with its offset as InsertField adds it."""
    both = json.loads(event["with_schema"])
    schema, value = both["schema"], both["payload"]
    fields = schema["fields"]
    if "unwrapped" in form:
        (row,) = (each["fields"] for each in fields if each["field"] == "after")
        fields, value = [*row, _field("string", "__deleted", optional=True)], json.loads(event["unwrapped"])
    return {**schema, "fields": [*fields, _field("int64", "_offset")]}, value


def _field(kind: str, name: str, *, optional: bool = False) -> Said:
    return {"type": kind, "optional": optional, "field": name}


def avro_schema(said: Said, named: set[str] | None = None) -> Any:
    """The schema of Avro that AvroData makes of one of Connect."""
    named = set() if named is None else named
    name = said.get("name")
    match said["type"]:
        case "struct" if name in named:
            made: Any = name
        case "struct":
            named.add(name or "Struct")
            fields = [{"name": each["field"], "type": avro_schema(each, named)} for each in said["fields"]]
            made = {"type": "record", "name": name or "Struct", "fields": fields}
        case "array":
            made = {"type": "array", "items": avro_schema(said["items"], named)}
        case kind:
            made = {"type": _PLAIN.get(kind, kind)}
            if kind in {"int8", "int16"}:
                made["connect.type"] = kind
    if name and isinstance(made, dict):
        made["connect.name"] = name
        parameters: Mapping[str, str] = said.get("parameters", {})
        if parameters:
            made["connect.parameters"] = parameters
        if name.startswith("org.apache.kafka.connect.data."):
            made["logicalType"] = _LOGICAL[name.rpartition(".")[2]]
            if made["logicalType"] == "decimal":
                digits = int(parameters.get("connect.decimal.precision", 64))
                made |= {"scale": int(parameters["scale"]), "precision": digits}
    return ["null", made] if said.get("optional") else made


def _value(said: Said, value: Any) -> Any:
    """A value as Avro's writer takes it: JSON has bytes as base64."""
    match said["type"]:
        case _ if value is None:
            return None
        case "struct":
            return {each["field"]: _value(each, value.get(each["field"])) for each in said["fields"]}
        case "array":
            return [_value(said["items"], each) for each in value]
        case "bytes":
            return b64decode(value)
        case _:
            return value


def _parquet(avro: bytes, schema: Any) -> bytes:
    """The same records as Parquet's writer for Avro leaves them: with their schema beside them."""
    rows = AvroRows(pa.BufferReader(avro), "_offset")
    table = pa.Table.from_batches(rows.batches(rows.schema.names, 0, 0))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"parquet.avro.schema": json.dumps(schema)}), sink)
    return sink.getvalue()
