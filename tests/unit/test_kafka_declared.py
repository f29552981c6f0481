"""Streams that are declared to lie in a Kafka broker, well and badly, and Avro schemas as their columns."""

from __future__ import annotations

import io
import json
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark import SparkConf

from coset.sources.kafka.cluster import Cluster
from coset.sources.kafka.decoded_values import AvroValues
from coset.sources.kafka.properties import PROPERTIES, properties
from coset.sources.kafka.registry import AvroSchema
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused, Unreachable
from partitioning.model.sources import KafkaSource
from partitioning.model.stream_rules import checked
from partitioning.model.streams import BY_THE_BROKER, Stream
from spark_jobs.on_spark import with_secrets

BROKERS = "kafka://broker-a:9092,broker-b:9092"


def declared(source: str = BROKERS, **words: Any) -> Stream:
    made = Pipeline("counted", source=source)
    told: dict[str, Any] = {"key": "tail", "partitions": 4, "format": "json", "columns": {"n": "BIGINT"}} | words
    made.stream("views", **told)
    return made.streams[0]


def test_a_stream_is_read_from_the_brokers_that_its_source_names_and_a_landed_one_says_nothing_of_them() -> None:
    stream = declared()
    assert stream.origin == KafkaSource(("broker-a:9092", "broker-b:9092"))
    assert (stream.sparse, stream.counted_by_plan) == (BY_THE_BROKER, False)
    assert checked(stream) == stream
    stream = declared("s3://landing/topics", format="parquet", columns=None)
    assert (stream.sparse, stream.schema, stream.counted_by_plan) == (None, "", True)


def test_the_pages_example_is_such_a_stream() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "kafka.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    (stream,) = names["pipeline"].streams
    assert (stream.name, stream.origin) == ("flights", KafkaSource(("broker-a:9092", "broker-b:9092")))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"source": "kafka://broker"}, "broker 'broker' of the source is no host:port"),
        ({"source": "kafka://broker:0"}, "broker 'broker:0' of the source is no host:port"),
        ({"source": "kafka://broker:70000"}, "broker 'broker:70000' of the source is no host:port"),
        ({"source": "kafka://a:1,,b:2"}, "broker '' of the source is no host:port"),
        ({"source": "kafka://me:secret@broker:9092"}, "broker 'broker:9092' of the source is no host:port"),
        ({"format": "parquet", "columns": None}, "a broker holds no Parquet"),
        ({"columns": None}, "JSON does not say of which types its columns are"),
        ({"format": "bytes"}, "columns are declared, and bytes says them itself"),
        ({"schema": "{}"}, "a schema is given, and json needs none"),
        ({"layout": "time"}, "a layout is given, and a broker has no folders"),
        ({"offset": None}, "offset=None is said, and a broker knows each record's offset"),
        ({"offsets": "sparse(5)"}, "the broker itself knows which offsets there are"),
        ({"cast": {"n": "INTEGER"}}, "columns are cast, and json has the types that are declared"),
        ({"columns": {"tail": "VARCHAR"}}, "column 'tail' is not of the value: the record has it beside"),
        ({"columns": {"_offset": "BIGINT"}}, "column '_offset' is not of the value: the record has it beside"),
        ({"key": "_timestamp"}, "the column '_timestamp' holds the records' timestamps"),
        ({"source": "s3://a/b", "format": "bytes", "columns": None}, "landed files are not plain bytes"),
        ({"source": "s3://a/b", "format": "avro", "columns": None, "schema": "{}"}, "landed files say their own"),
    ],
)
def test_what_cannot_be_is_refused(words: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused) as refused:
        declared(**words)
    (finding,) = refused.value.findings
    assert what in finding.what
    assert "secret" not in str(refused.value)


def test_what_a_broker_does_not_allow_is_refused_and_what_it_does_not_answer_may_pass() -> None:
    cluster = Cluster(KafkaSource(("broker:9092",)))
    denied = cluster.error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "it cannot be read", "there")
    assert isinstance(denied, Refused)
    assert "denied access (TOPIC_AUTHORIZATION_FAILED)" in denied.findings[0].what
    away = cluster.error(KafkaException(KafkaError(KafkaError._TRANSPORT)), "it cannot be read", "there")
    assert isinstance(away, Unreachable)


def test_executors_elsewhere_are_told_where_the_properties_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "kafka.properties"
    named.write_text("# a cluster\n\nsasl.username = me\nsasl.password=a=b\nschema.registry.url=http://registry\n")
    monkeypatch.setenv(PROPERTIES, str(named))
    assert properties().clients == {"sasl.username": "me", "sasl.password": "a=b"}
    assert properties().registry == {"url": "http://registry"}
    conf = with_secrets(SparkConf(loadDefaults=False).setMaster("spark://elsewhere:7077"))
    assert conf.get(f"spark.executorEnv.{PROPERTIES}") == str(named)


def test_properties_that_are_not_there_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROPERTIES, raising=False)
    assert (properties().clients, properties().registry) == ({}, {})
    monkeypatch.setenv(PROPERTIES, str(tmp_path / "nowhere"))
    with pytest.raises(Refused, match="cannot be read: No such file"):
        properties()


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
    (
        {"type": "fixed", "name": "Price", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2},
        pa.decimal128(6, 2),
        Decimal("-12.25"),
    ),
    ({"type": "long", "logicalType": "decimal", "precision": 6, "scale": 2}, pa.int64(), 1225),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64(), 1_001),
    ({"type": "int", "logicalType": "date"}, pa.date32(), date(2026, 3, 1)),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), time(1, 2, 3)),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
]


def schema_of(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": "Value", "fields": fields}


@pytest.mark.parametrize(("kind", "arrow", "value"), KINDS)
def test_each_type_is_a_column_and_gives_its_values(kind: Any, arrow: pa.DataType, value: object) -> None:
    # The second time a type that has a name is only named.
    both = schema_of(kind, kind.get("name", kind) if isinstance(kind, dict) else kind)
    schema = AvroSchema(json.dumps(both), "here")
    assert schema.columns.types == [arrow, arrow]
    assert not schema.columns.field(0).nullable
    data = io.BytesIO()
    written = dict(value) if isinstance(value, list) and isinstance(value[0], tuple) else value
    fastavro.schemaless_writer(data, fastavro.parse_schema(both), {"f0": written, "f1": written})
    columns = AvroValues(schema.columns, None, schema).columns([None, data.getvalue()], ["f0", "f1"])
    assert [column.to_pylist() for column in columns] == [[None, value], [None, value]]


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
        (
            json.dumps(schema_of({"type": "bytes", "logicalType": "decimal"})),
            "column 'f0' is a decimal of no precision",
        ),
    ],
)
def test_what_is_no_record_of_columns_is_refused(text: str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        AvroSchema(text, "here")
