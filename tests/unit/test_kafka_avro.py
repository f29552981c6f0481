"""Avro schemas as columns, and values by them, without any broker."""

from __future__ import annotations

import io
import json
from datetime import date, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from coset.sources.kafka.avro_values import AvroValues
from coset.sources.kafka.registry import AvroSchema
from partitioning.errors import Refused

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
KINDS: list[tuple[Any, pa.DataType, object]] = [
    ("boolean", pa.bool_(), True),
    ("float", pa.float32(), 0.5),
    ({"type": "enum", "name": "Color", "symbols": ["RED"]}, pa.string(), "RED"),
    ({"type": "fixed", "name": "Two", "size": 2}, pa.binary(), b"ab"),
    ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64()), [1, None]),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.field("value", pa.int32(), False)), [("k", 1)]),
    (INNER, pa.struct([pa.field("x", pa.int32(), False)]), {"x": 5}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, pa.decimal128(6, 2), Decimal("12.25")),
    ({"type": "int", "logicalType": "date"}, pa.date32(), date(2026, 3, 1)),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), time(1, 2, 3)),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
]


def schema_of(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": "Value", "fields": fields}


@pytest.mark.parametrize(("kind", "arrow", "value"), KINDS)
def test_each_type_is_a_column_and_gives_its_values(kind: Any, arrow: pa.DataType, value: object) -> None:
    schema = AvroSchema(json.dumps(schema_of(kind)), "here")
    assert schema.columns.field(0).type == arrow
    assert not schema.columns.field(0).nullable
    data = io.BytesIO()
    written = dict(value) if isinstance(value, list) and isinstance(value[0], tuple) else value
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema_of(kind)), {"f0": written})
    (column,) = AvroValues(schema.columns, None, schema).columns([None, data.getvalue()], ["f0"])
    assert column.to_pylist() == [None, value]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "the schema is no Avro schema"),
        ('"string"', "its records are string, and records with columns are needed"),
        (
            '{"type": "record", "name": "V", "fields": [{"name": "f", "type": "strnig"}]}',
            "the schema is no Avro schema",
        ),
        (json.dumps(schema_of(["int", "string"])), "column 'f0' may be int and string, which is no type of SQL's"),
        (json.dumps(schema_of(["null", "Value"])), "column 'f0' holds records Value within themselves"),
        (
            json.dumps(schema_of({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 39})),
            "column 'f0' has 39 digits behind the point",
        ),
    ],
)
def test_what_is_no_record_of_columns_is_refused(text: str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        AvroSchema(text, "here")
