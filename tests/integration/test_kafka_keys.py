"""Keys that a broker holds behind a registry's id, or as JSON objects: their columns are read from their own bytes."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from coset.batches.publication import abandon
from coset.sources.kafka.properties import PROPERTIES
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.batches import rows
from tests.commands import coset, refused, succeeded
from tests.kafka import new_topic, produce
from tests.registry import USER, running
from tests.running import moved, next_batch, run_and_publish

FIELDS = [{"name": "id", "type": "long"}, {"name": "land", "type": ["null", "string"]}]
SCHEMAS = {
    number: json.dumps({"type": "record", "name": "Key", "doc": f"{number}", "fields": FIELDS}) for number in (1, 2)
}


class Orders:
    """A topic of orders, the sums of its keys by what was sent, and pipelines that add them up too."""

    def __init__(self, kafka: KafkaServer, store: Store) -> None:
        self.kafka, self.store, self.topic = kafka, store, new_topic(kafka, 3)
        self.sums = Counter[tuple[int, str | None]]()

    def send(self, written: Callable[[dict[str, Any]], bytes | None], first: int) -> None:
        for number in range(first, first + 40):
            key = number % 13 - 5, None if number % 3 else "DE"
            # What the value has under the names of the key is not asked for.
            value = {"n": number, "id": "another"}
            produce(self.kafka, self.topic, [(written(dict(zip(("id", "land"), key, strict=True))), value)])
            self.sums[key] += number

    def pipeline(self, **keys: Any) -> Pipeline:
        pipeline = Pipeline("summed", source=self.kafka.source)
        declared = {"key": ("id", "land"), "columns": {"n": "BIGINT"}, **keys}
        orders = pipeline.stream(self.topic, partitions=3, format="json", **declared)
        orders.select("n", name="numbers").combine("sum(n)::BIGINT AS n", running=True, name="sums").write(
            "sums", mode="upsert"
        )
        return pipeline

    def batch(self, **keys: Any) -> int:
        """A batch, after which the table is right; how many records moved in it."""
        ref = next_batch(self.pipeline(**keys), self.store.root)
        run_and_publish(ref)
        assert {row[:2]: row[2] for row in rows(self.store.root, "sums")} == dict(self.sums)
        return moved(self.store, ref.load()[1])


def test_keys_of_a_real_serialiser_are_read_and_meet_under_whichever_id(kafka: KafkaServer, store: Store) -> None:
    orders, avro = Orders(kafka, store), {"key_format": "avro"}
    with running() as registry:
        client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": USER})
        where = SerializationContext(orders.topic, MessageField.KEY)
        first, second = (AvroSerializer(client, text) for text in SCHEMAS.values())
        orders.send(lambda key: first(key, where), 0)
        assert orders.batch(**avro, key_schemas={1: SCHEMAS[1]}) == 0
        orders.send(lambda key: second(key, where), 100)
        orders.send(lambda key: first(key, where), 200)
        said = "its key has the schema 2, and key_schemas= names 1"
        with pytest.raises(Refused, match=said):
            orders.batch(**avro, key_schemas={1: SCHEMAS[1]})
        abandon(Ledger(store, "summed"), said)
        # Half of the records are by the first, and some of them lie where they do by the second.
        assert 0 < orders.batch(**avro, key_schemas=SCHEMAS) < 40
        orders.send(lambda key: second(key, where), 300)
        assert orders.batch(**avro, key_schemas={2: SCHEMAS[2]}) == 0


def test_keys_that_are_json_objects_are_read_as_they_were_written(kafka: KafkaServer, store: Store) -> None:
    orders = Orders(kafka, store)
    types = {"columns": {"n": "BIGINT", "id": "INTEGER", "land": "VARCHAR"}}

    def written(key: dict[str, Any]) -> bytes:
        return json.dumps(key, separators=(",", ":")).encode()

    orders.send(written, 0)
    assert orders.batch(key_format="json", **types) == 0
    orders.send(written, 100)
    assert orders.batch(key_format="json", **types) == 0
    produce(kafka, orders.topic, [(json.dumps({"id": 3, "land": None}), {"n": 1})])
    with pytest.raises(Refused, match="that is not written as declared: without spaces"):
        orders.batch(key_format="json", **types)


def test_a_key_of_one_value_is_its_column_and_may_not_be_there(kafka: KafkaServer, store: Store) -> None:
    topic = new_topic(kafka, 3)
    pipeline = Pipeline("counted", source=kafka.source)
    keys: dict[str, Any] = {"key": "id", "key_format": "avro", "key_schemas": {7: '"long"'}, "null_keys": "own task"}
    views = pipeline.stream(topic, partitions=3, format="json", columns={"n": "BIGINT"}, **keys)
    views.aggregate("count(*) AS c").write("counted")
    produce(kafka, topic, [(bytes.fromhex("0000000007d20f"), {"n": 1})] * 2 + [(None, {"n": 1})])
    run_and_publish(next_batch(pipeline, store.root))
    assert rows(store.root, "counted") == [(1001, 2), (None, 1)]


def test_the_schemas_that_a_registry_has_are_printed_as_a_stream_declares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as registry:
        named = tmp_path / "client.properties"
        named.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info={USER}\n")
        monkeypatch.setenv(PROPERTIES, str(named))
        registry.register("orders-value", '"string"')
        for text in SCHEMAS.values():
            registry.register("orders-key", text)
        said = succeeded("schemas", "orders").stdout
        found = json.loads(succeeded("schemas", "orders", "--json").stdout)
        missing = coset("schemas", "returns")
    assert USER not in said
    call = ast.parse(f"dict({said.partition('moves:')[2].strip()})", mode="eval").body
    assert isinstance(call, ast.Call)
    options: Any = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    assert options == {"key_format": "avro", "key_schemas": {2: SCHEMAS[1], 3: SCHEMAS[2]}}
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("orders", key=("id", "land"), partitions=12, **options)
    assert found == {"topic": "orders", "key_format": "avro", "key_schemas": {"2": SCHEMAS[1], "3": SCHEMAS[2]}}
    refused(missing, "the schema registry does not have it", "subject 'returns-key'")
