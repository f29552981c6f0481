"""Values of records in a broker: JSON, Avro by a given schema or a registry's, bytes; tombstones, and what is wrong."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from coset.batches.planning import preview
from coset.sources.kafka.properties import PROPERTIES
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused, Unreachable
from tests.batches import rows
from tests.commands import coset
from tests.kafka import new_topic, produce
from tests.landed import land_table
from tests.refused import finding_of
from tests.registry import USER, Registry
from tests.sparse import published

FIRST = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
# A column is added, one widened, one gone.
SECOND = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "member", "type": ["null", {"type": "string", "logicalType": "uuid"}], "default": None},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def copied(source: str, topic: str, selected: str, **declared: Any) -> Pipeline:
    """A pipeline whose result is the records themselves."""
    made = Pipeline("copied", source=source)
    made.stream(topic, key="tail", partitions=2, **declared).select(selected, name="rows").write("rows")
    return made


def avro(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), record)
    return data.getvalue()


def result(store: Store, columns: int) -> list[tuple[object, ...]]:
    return [row[:columns] for row in rows(store.root, "rows")]


@pytest.mark.long
def test_landed_files_and_the_broker_give_the_same_rows(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    tails = [f"N{number}" for number in range(20)]
    table = pa.table(
        {
            "tail": pa.array(tails, pa.string()),
            "n": pa.array(range(20), pa.int32()),
            "part": pa.array([number / 8 for number in range(20)], pa.float64()),
            "late": pa.array([None if number % 3 else number % 2 == 0 for number in range(20)], pa.bool_()),
            "seen": pa.array([AT + timedelta(hours=number) for number in range(20)], pa.timestamp("us", "UTC")),
            "tags": pa.array([[f"t{number}"] for number in range(20)], pa.list_(pa.string())),
        }
    )
    topic = new_topic(kafka)
    land_table(table, topic, f"{store.root}/topics", key="tail", partitions=2)
    records = [{**row, "seen": row["seen"].isoformat()} for row in table.to_pylist()]
    produce(kafka, topic, [(row.pop("tail"), row) for row in records])
    columns = "n, part, late, seen, tags, _offset AS place"
    types = {"n": "INTEGER", "part": "DOUBLE", "late": "BOOLEAN", "seen": "TIMESTAMPTZ", "tags": "VARCHAR[]"}
    published(store, copied(f"{store.root}/topics", topic, columns), tmp_path)
    from_files = result(store, 7)
    other = store_at(f"{store.root}/from-broker")
    published(other, copied(kafka.source, topic, columns, format="json", columns=types), tmp_path)
    assert result(other, 7) == from_files
    assert len(from_files) == 20


def test_a_stream_that_was_landed_goes_on_from_its_broker(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic, tails = new_topic(kafka), [f"N{number}" for number in range(20)]
    table = pa.table({"tail": pa.array(tails, pa.string()), "n": pa.array(range(20), pa.int32())})
    land_table(table, topic, f"{store.root}/topics", key="tail", partitions=2)
    published(store, copied(f"{store.root}/topics", topic, "n"), tmp_path)
    produce(kafka, topic, [(tail, {"n": number}) for number, tail in enumerate((*tails, *tails))])
    again = copied(kafka.source, topic, "n", format="json", columns={"n": "INTEGER"})
    assert published(store, again, tmp_path).load()[1].records == 20
    assert sorted(row[:2] for row in rows(store.root, "rows")) == sorted(
        (tail, number + more) for number, tail in enumerate(tails) for more in (0, 20)
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"n": "1"}', "Expected `int | null`, got `str` - at `$.n`"),
        (b'{"n": 1.5}', "Expected `int | null`, got `float` - at `$.n`"),
        (b'{"n": 3000000000}', "too large"),
        (b"null", "Expected `object`, got `null`"),
        (b"", "Input data was truncated"),
        (b'{"n": 1}{"n": 2}', "trailing characters"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_wrong_json_is_refused_with_its_offset(
    kafka: KafkaServer, store: Store, tmp_path: Path, value: bytes, said: str
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [("a", {"n": 1}), ("a", {"n": 2}), ("a", value), ("a", b"worse")])
    made = copied(kafka.source, topic, "n", format="json", columns={"n": "INTEGER"})
    finding = finding_of(published, store, made, tmp_path)
    assert finding.what.startswith(f"{topic}: offset 2: the value is not as declared: ")
    assert said in finding.what
    assert finding.where.startswith(f"{kafka.source}/{topic}/")


def test_a_value_that_is_not_as_declared_is_quoted_to_nobody_if_it_may_be_private(
    kafka: KafkaServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    topic, docs = new_topic(kafka), tmp_path / "docs"
    produce(kafka, topic, [("a", {"n": 1}), ("canary-key", {"n": "canary"}), ("b", b'{"n": canary}')])
    (file := tmp_path / "copied.py").write_text(
        f"from coset import Pipeline\npipeline = Pipeline('copied', source={kafka.source!r})\n"
        f"rows = pipeline.stream({topic!r}, key='tail', partitions=2, format='json', columns={{'n': 'INTEGER'}},"
        " private=('tail', 'n'))\nrows.select('n', name='rows').write('rows')\n"
    )
    told = [
        coset("run", str(file), "--runner", "local", "--docs", str(docs)),
        *(coset("records", str(file), "--batch", "0", *more) for more in ((), ("--json",), ("--key", "canary-key"))),
        coset("show", str(file)),
        coset("report", str(file)),
    ]
    assert told[0].exit_code == 3
    assert "offset 1: the value is not as declared: the rest may quote" in told[0].stderr
    stored = [store.get(entry.key) or b"" for entry in store.list("copied/") if entry.key.endswith((".json", ".html"))]
    texts = [caplog.text, *(each.stdout + each.stderr for each in told), *(each.decode() for each in stored)]
    assert [text for text in texts if "canary" in text.replace("--key canary-key", "")] == []


def test_a_field_that_is_not_there_is_null_and_a_tombstone_is_null_in_all(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    produce(
        kafka,
        topic,
        [
            ("a", {"n": 1, "more": [1], "tail": 7, "_offset": "x"}),
            ("b", {}),
            ("c", None),
            (None, {"n": 4, "page": "x"}),
        ],
    )
    types = {"n": "INTEGER", "page": "VARCHAR"}
    made = copied(kafka.source, topic, "n, page", format="json", columns=types, null_keys="own task")
    published(store, made, tmp_path)
    assert set(result(store, 3)) == {("a", 1, None), ("b", None, None), ("c", None, None), (None, 4, "x")}


def test_the_time_of_a_record_is_a_column(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    produce(kafka, topic, [("a", {"n": 1})])
    columns = "_timestamp AS written, _partition AS part, _offset AS place"
    published(store, copied(kafka.source, topic, columns, format="json", columns={"n": "INTEGER"}), tmp_path)
    ((tail, written, part, place),) = result(store, 4)
    assert (tail, part in (0, 1), place) == ("a", True, 0)
    assert isinstance(written, datetime)
    assert before <= written <= datetime.now(UTC)


def test_bytes_are_given_as_they_are(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [("a", b"\x00\xff"), ("b", b""), ("c", None)])
    published(store, copied(kafka.source, topic, "value", format="bytes"), tmp_path)
    assert result(store, 2) == [("a", b"\x00\xff"), ("b", b""), ("c", None)]


@pytest.mark.parametrize(
    ("key_format", "written", "read"),
    [
        ("long", struct.pack(">q", -5), -5),
        ("int", struct.pack(">i", 7), 7),
        ("double", struct.pack(">d", 2.5), 2.5),
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("uuid", b"6f9619ff-8b86-d011-b42d-00c04fc964ff", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    ],
)
def test_keys_are_read_by_their_format_and_lie_where_they_hash(
    kafka: KafkaServer, store: Store, tmp_path: Path, key_format: str, written: bytes, read: object
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [(written, b"x")])
    published(store, copied(kafka.source, topic, "value", format="bytes", key_format=key_format), tmp_path)
    assert result(store, 2) == [(read, b"x")]


@pytest.mark.parametrize(("key_format", "key"), [("long", b"four"), ("string", b"\xff")])
def test_a_key_of_another_format_is_refused_with_its_offset(
    kafka: KafkaServer, store: Store, tmp_path: Path, key_format: str, key: bytes
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [(key, b"x")])
    with pytest.raises(Refused, match=f"offset 0: the key is not of the declared format '{key_format}'"):
        published(store, copied(kafka.source, topic, "value", format="bytes", key_format=key_format), tmp_path)


def test_avro_is_read_by_a_given_schema(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [("a", avro(FIRST, {"n": 1, "page": "home", "seen": AT})), ("b", None)])
    made = copied(kafka.source, topic, "n, page, seen", format="avro", schema=json.dumps(FIRST))
    published(store, made, tmp_path)
    assert set(result(store, 4)) == {("a", 1, "home", AT), ("b", None, None, None)}


def test_avro_that_is_not_of_its_schema_is_refused(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [("a", avro(FIRST, {"n": 1, "page": "home", "seen": AT}) + b"\x00")])
    made = copied(kafka.source, topic, "n", format="avro", schema=json.dumps(FIRST))
    with pytest.raises(Refused, match="offset 0: the value is not as its schema says: bytes are left behind it"):
        published(store, made, tmp_path)


def test_avro_of_a_registry_is_read_by_each_writers_schema(
    kafka: KafkaServer, store: Store, tmp_path: Path, registry: Registry
) -> None:
    topic = new_topic(kafka)
    client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": USER})
    first, second = (AvroSerializer(client, json.dumps(schema)) for schema in (FIRST, SECOND))
    value = SerializationContext(topic, MessageField.VALUE)
    member = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    made = copied(kafka.source, topic, "* EXCLUDE (tail, _timestamp, _offset) REPLACE (n::BIGINT AS n)", format="avro")
    produce(kafka, topic, [("a", first({"n": 1, "page": "home", "seen": AT}, value))])
    plan = published(store, made, tmp_path).load()[1]
    assert USER not in str(plan)
    assert registry.url not in str(plan)
    produce(
        kafka,
        topic,
        [
            ("a", second({"n": 1 << 40, "member": member, "seen": AT}, value)),
            ("b", None),
            ("c", first({"n": 3, "page": None, "seen": AT}, value)),
        ],
    )
    again = published(store, made, tmp_path).load()[1]
    types = {column.name: column.type for column in again.streams[0].columns}
    assert (types["n"], types["member"], types["page"]) == ("BIGINT", "VARCHAR", "VARCHAR")
    assert set(result(store, 5)) == {
        ("a", 1, "home", AT, None),
        ("a", 1 << 40, None, AT, member),
        ("b", None, None, None, None),
        ("c", 3, None, AT, None),
    }


def test_a_value_without_a_schema_of_the_registry_is_refused(
    kafka: KafkaServer, store: Store, tmp_path: Path, registry: Registry
) -> None:
    topic = new_topic(kafka)
    registry.register(f"{topic}-value", json.dumps(FIRST))
    made = copied(kafka.source, topic, "n", format="avro")
    produce(kafka, topic, [("a", b"\x00\x00\x00\x00\x09rest")])
    with pytest.raises(Refused, match="offset 0: the value is written by schema 9, which the registry does not have"):
        published(store, made, tmp_path)


def test_schemas_that_do_not_go_together_are_refused(kafka: KafkaServer, store: Store, registry: Registry) -> None:
    topic = new_topic(kafka)
    registry.register(f"{topic}-value", json.dumps(FIRST))
    registry.register(f"{topic}-value", json.dumps(FIRST).replace('"int"', '"string"'))
    with pytest.raises(Refused, match="columns differ: n is VARCHAR, not INTEGER"):
        preview(copied(kafka.source, topic, "n", format="avro"), store)


def test_a_topic_that_the_registry_does_not_know_is_refused(
    kafka: KafkaServer, store: Store, registry: Registry
) -> None:
    topic = new_topic(kafka)
    with pytest.raises(Refused, match="the schema registry does not have it"):
        preview(copied(kafka.source, topic, "n", format="avro"), store)


def test_no_error_tells_a_secret(
    kafka: KafkaServer, store: Store, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka)
    made = copied(kafka.source, topic, "n", format="avro")
    wrong = tmp_path / "wrong.properties"
    monkeypatch.setenv(PROPERTIES, str(wrong))
    for text, said in (
        (
            f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info=me:hidden",
            "the schema registry denied access",
        ),
        ("", "no schema registry is configured"),
        ("sasl.pasword=hidden", "property 'sasl.pasword' is not accepted"),
        ("hidden", "line 1 is no property"),
    ):
        wrong.write_text(text)
        with pytest.raises(Refused, match=said) as refused:
            preview(made, store)
        assert "hidden" not in str(refused.value)
    wrong.write_text("schema.registry.url=http://127.0.0.1:1\nschema.registry.max.retries=0")
    with pytest.raises(Unreachable, match="the schema registry does not answer"):
        preview(made, store)
