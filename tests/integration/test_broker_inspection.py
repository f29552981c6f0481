"""`coset inspect` of a topic in its broker: what it prints runs as it is, in a repository that `coset init` writes."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from coset.sources.kafka.properties import PROPERTIES
from demo.kafka_server import KafkaServer
from partitioning.framed_keys import framed
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from tests import forked
from tests.batches import rows
from tests.commands import coset, refused, succeeded
from tests.kafka import Record, new_topic, produce, remove_before
from tests.registry import USER, running
from tests.running import next_batch, run_and_publish

TEXT: list[Record] = [(f"c{n % 60}", {"amount": n, "in": {"x": 0.5}}) for n in range(300)]


def inspected(kafka: KafkaServer, topic: str) -> dict[str, Any]:
    return dict(json.loads(succeeded("inspect", f"{kafka.source}/{topic}", "--json").stdout))


def landed_in(
    kafka: KafkaServer, records: Sequence[Record], partitioner: str = "murmur2_random", partitions: int = 3
) -> str:
    topic = new_topic(kafka, partitions)
    produce(kafka, topic, records, partitioner=partitioner)
    return topic


@pytest.mark.parametrize(
    ("partitioner", "hash"), [("murmur2_random", ""), ("consistent_random", "crc32"), ("fnv1a_random", "fnv1a")]
)
def test_what_it_prints_is_published_with_every_record(
    partitioner: str, hash: str, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = landed_in(kafka, [*TEXT, ("c1", None)], partitioner)
    found = inspected(kafka, topic)
    assert (f'hash="{hash}"' in found["declaration"]) is bool(hash)
    assert (found["key"]["told"], found["key"]["explained"]) == ("surely", 60)
    assert (found["format"], sum(each["records"] for each in found["offsets"])) == ("json", 301)
    assert {each["name"]: each["type"] for each in found["columns"]} == {
        "key": "VARCHAR",
        "amount": "BIGINT",
        "in": "STRUCT(x DOUBLE)",
        "_timestamp": "TIMESTAMP WITH TIME ZONE",
        "_offset": "BIGINT",
    }
    made = forked.coset("init", "shop", "--from", f"{kafka.source}/{topic}", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "shop" / "coset.toml").read_text().count(f'source = "{kafka.source}"') == 2
    for command in (("run", topic), ("rows", topic, "--json", "--limit", "100")):
        done = forked.coset(*command, folder=tmp_path / "shop")
        assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert {row["key"]: row["records"] for row in table["first"]} == {f"c{n}": 5 + (n == 1) for n in range(60)}


@pytest.mark.parametrize(
    ("layout", "key_format"), [(">q", "long"), (">i", "int"), (">qB", "bytes")], ids=["long", "int", "bytes"]
)
def test_a_key_is_what_its_bytes_may_be(layout: str, key_format: str, kafka: KafkaServer) -> None:
    keys = [struct.pack(layout, *([n, 7][: len(layout) - 1])) for n in range(100)]
    topic = landed_in(kafka, [(key, b"no JSON") for key in keys])
    found = inspected(kafka, topic)
    assert (found["key"]["told"], found["key"]["key_format"], found["format"]) == ("surely", key_format, "bytes")
    assert f'key_format="{key_format}"' in found["declaration"]


def test_the_oldest_and_the_newest_records_are_looked_at(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from coset.sources.kafka import broker_topic

    monkeypatch.setattr(broker_topic, "_OF_A_PARTITION", 100)
    topic = landed_in(kafka, [(f"k{n}", {"n": n}) for n in range(1000)], partitions=1)
    remove_before(kafka, topic, 0, 10)
    produce(kafka, topic, [("k", {"n": 1, "late": "x", "_offset": "7"})])
    found = inspected(kafka, topic)
    assert found["offsets"] == [{"partition": 0, "first": 10, "next": 1001, "records": 991, "missing": 0, "doubles": 0}]
    assert {"late", "n"} <= {each["name"] for each in found["columns"]}
    assert found["left_out"] == {"_offset": "the record has a column of its own of this name"}
    seen = succeeded("inspect", f"{kafka.source}/{topic}").stdout
    assert "JSON, in its brokers; offsets count as records" in seen


def test_values_of_a_schema_registry_are_bytes_without_one(kafka: KafkaServer) -> None:
    topic = landed_in(kafka, [(f"k{n}", b"\0\0\0\0\7abc") for n in range(100)])
    seen = succeeded("inspect", f"{kafka.source}/{topic}").stdout
    assert "a schema registry knows what its bytes are: name it as schema.registry.url" in seen
    assert 'format="bytes"' in seen


LONG, TEXTS = (KeySchema(Framing.AVRO, 7, (KeyField("", kind),)) for kind in ("long", "string"))
IDS = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}, {"name": "land", "type": "string"}]}


def test_keys_behind_a_registry_are_declared_by_its_schemas(
    kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as registry:
        named = tmp_path / "client.properties"
        named.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info={USER}\n")
        client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": USER})
        first, second = (AvroSerializer(client, json.dumps({**IDS, "doc": doc})) for doc in ("a", "b"))
        topic, where = new_topic(kafka, 3), SerializationContext("orders", MessageField.KEY)
        keys = [{"id": n % 40, "land": "DE"} for n in range(120)]
        produce(kafka, topic, [(first(key, where), {"n": 1, "id": "x"}) for key in keys])
        produce(kafka, topic, [(second(key, where), {"n": 1}) for key in keys])
        alone = succeeded("inspect", f"{kafka.source}/{topic}").stdout
        assert "a registry, which is hashed with them: 1 (120 records), 2 (120 records)" in alone
        assert f"`coset schemas {topic}` asks the registry" in alone
        assert 'key_format="bytes"' in alone
        monkeypatch.setenv(PROPERTIES, str(named))
        found = inspected(kafka, topic)
    assert (found["key"]["told"], found["key"]["columns"]) == ("surely", ["id", "land"])
    assert (found["key"]["key_format"], found["key"]["ids"]) == ("avro", {"1": 120, "2": 120})
    assert {"name": "id", "type": "BIGINT"} in found["columns"]
    # No registry is there any more.
    assert counted(found, tmp_path) == {(n, "DE"): 6 for n in range(40)}


def counted(found: dict[str, Any], folder: Path) -> dict[Any, int]:
    """How many records of each key the pipeline has that is declared so."""
    pipeline: dict[str, Any] = {}
    exec(f"{found['declaration']}\n{found['stream']}.aggregate('count(*) AS n').write('counted')\n", pipeline)
    run_and_publish(next_batch(pipeline["pipeline"], str(folder / "store")))
    published: list[Any] = rows(str(folder / "store"), "counted")
    return {row[:-1] if len(row) > 2 else row[0]: row[-1] for row in published}


@pytest.mark.parametrize(
    ("body", "declared"),
    [
        (lambda n: framed([n], LONG), 'key="key", partitions=3, key_format="avro"'),
        (lambda n: framed([f"c{n}"], TEXTS), 'key="key", partitions=3, key_format="avro"'),
        (lambda n: b'\0\0\0\0\7{"id":%d}' % n, 'key=("id",), partitions=3, key_format="json-schema"'),
    ],
)
def test_keys_that_say_themselves_how_they_are_written_need_no_registry(
    body: Any, declared: str, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = landed_in(kafka, [(body(n % 40 * 300), {"n": n}) for n in range(120)])
    found = inspected(kafka, topic)
    assert declared in " ".join(found["declaration"].split()).replace("( ", "(")
    assert list(counted(found, tmp_path).values()) == [3] * 40


def test_what_is_no_topic_to_declare_is_refused_with_what_to_do(kafka: KafkaServer) -> None:
    refused(coset("inspect", f"{kafka.source}/no_such"), "there is no topic 'no_such'", "correct the stream's name")
    refused(
        coset("inspect", "kafka://broker/orders"), "broker 'broker' of the source is no host:port", "kafka://host:port"
    )
    empty = landed_in(kafka, [("k", {"n": 1})], partitions=1)
    remove_before(kafka, empty, 0, 1)
    refused(coset("inspect", f"{kafka.source}/{empty}"), "no record is there yet", "run the same command again")
    keyless = landed_in(kafka, [(None, {"n": n}) for n in range(10)])
    refused(
        coset("inspect", f"{kafka.source}/{keyless}"), "no record that was looked at has a key", "null_keys='own task'"
    )
