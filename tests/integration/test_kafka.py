"""Batches that read a topic from its broker: its ends, its keys behind a registry's id, and what is published."""

from __future__ import annotations

import ast
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from coset.batches import steps
from coset.batches.ends import forget
from coset.batches.planning import preview
from coset.batches.publication import abandon
from coset.sources.kafka.properties import PROPERTIES
from demo.kafka_jars import archive, archived, java, kafka_jars
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.read_ends import What
from tests.batches import rows
from tests.commands import coset, refused, succeeded
from tests.kafka import COLUMNS, TAILS, counted, create, delete, new_topic, produce, views
from tests.landed import land_table
from tests.registry import USER, running
from tests.running import moved, next_batch, run_and_publish
from tests.sparse import published


def test_each_record_is_counted_once_and_the_next_batch_goes_on(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    made = counted(kafka, topic)
    produce(kafka, topic, views(TAILS * 3))
    ref = published(store, made, tmp_path)
    _, plan = ref.load()
    assert plan.records == 120
    assert [partition.start for partition in plan.streams[0].partitions] == [0, 0]
    assert [row[:3] for row in rows(store.root, "counted")] == sorted(
        (tail, 3, 3 * number + 120) for number, tail in enumerate(TAILS)
    )
    assert "120 records" in steps.report(ref, tmp_path)
    assert preview(made, store).sentence == "Nothing to do: no new records since batch 0"
    produce(kafka, topic, views(TAILS[:5]))
    again = published(store, made, tmp_path).load()[1]
    assert again.records == 5
    ends = [partition.end for partition in plan.streams[0].partitions]
    assert [partition.committed for partition in again.streams[0].partitions] == ends


def test_a_broker_starts_with_the_classes_that_one_before_it_wrote(kafka: KafkaServer) -> None:
    assert kafka.source
    # With `on` Java ends if the file does not fit.
    options = ("-Xshare:on", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={archive()}", "-cp", f"{kafka_jars()}/*")
    said = subprocess.run([java(), *options, "-Xlog:cds", "-version"], capture_output=True, text=True, check=True)
    assert f"Opened archive {archive()}" in said.stdout


def test_a_broker_starts_without_them_where_they_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / archive().name
    monkeypatch.setattr("demo.kafka_jars.kafka_jars", lambda: tmp_path)

    def refused(_: Path) -> None:
        raise Refused.of(Kind.DEMO, "the Kafka broker does not answer", "server.log", "read the log")

    archived(refused)
    assert not written.exists()
    archived(Path.touch)
    archived(refused)
    assert written.exists()


TAILS_ENDS = [f"N{number}" for number in range(20)]


def reading(source: str, *topics: str) -> Pipeline:
    """A pipeline that writes the views of each topic, as they are, to one table."""
    made = Pipeline("read", source=source)
    told: dict[str, Any] = {"format": "json", "columns": COLUMNS} if source.startswith("kafka:") else {}
    first, *others = (made.stream(topic, key="tail", partitions=2, **told) for topic in topics)
    for other in others:
        first = first.merge(other)
    first.select("n", name="seen").write("seen")
    return made


def _but(topics: Sequence[str]) -> Settings:
    """Without the other topic the table keeps what came of it."""
    return DEFAULTS if len(topics) > 1 else Settings(go_on=("seen",))


def numbers(store: Store) -> list[int]:
    return sorted(number for row in rows(store.root, "seen") if isinstance(number := row[1], int))


def test_a_topic_that_is_left_out_and_comes_back_goes_on_where_it_was(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    one, two = new_topic(kafka), new_topic(kafka)
    for round_, topics in enumerate([(one, two), (one,), (one, two)]):
        produce(kafka, one, views(TAILS_ENDS, 1000 * round_))
        produce(kafka, two, views(TAILS_ENDS, 1000 * round_ + 500))
        published(store, reading(kafka.source, *topics), tmp_path, _but(topics))
    assert numbers(store) == [number + more for number in (0, 500, 1000, 1500, 2000, 2500) for more in range(20)]


def test_a_topic_that_was_made_anew_while_it_was_left_out_is_refused_until_it_is_forgotten(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    one, two = new_topic(kafka), new_topic(kafka)
    for topics in ((one, two), (one,)):
        produce(kafka, one, views(TAILS_ENDS))
        produce(kafka, two, views(TAILS_ENDS, 500))
        published(store, reading(kafka.source, *topics), tmp_path, _but(topics))
    delete(kafka, two)
    create(kafka, two, 2)
    # More than there were, so that no offset shows it.
    produce(kafka, two, views(TAILS_ENDS * 4, 7000))
    with pytest.raises(Refused, match="the topic was re-created") as refused:
        preview(reading(kafka.source, one, two), store)
    assert f"coset forget read {two} --why '…'" in refused.value.findings[0].then
    forget(Ledger(store, "read"), two, None, What.POSITION, "made anew")
    plan = published(store, reading(kafka.source, one, two), tmp_path).load()[1]
    assert [partition.start for partition in plan.stream(two).partitions] == [0, 0]
    assert numbers(store)[-80:] == list(range(7000, 7080))


def test_a_stream_that_goes_to_its_broker_and_back_has_each_record_once(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic, landing = new_topic(kafka), f"{store.root}/topics"
    for number, source in enumerate([landing, kafka.source, landing, kafka.source]):
        sent = list(range(20 * number, 20 * number + 20))
        table = pa.table({"tail": pa.array(TAILS_ENDS, pa.string()), "n": pa.array(sent, pa.int64())})
        land_table(table, topic, landing, key="tail", partitions=2)
        produce(kafka, topic, views(TAILS_ENDS, 20 * number))
        plan = published(store, reading(source, topic), tmp_path).load()[1]
        assert plan.records == 20
    assert numbers(store) == list(range(80))
    delete(kafka, topic)
    create(kafka, topic, 2)
    produce(kafka, topic, views(TAILS_ENDS * 5))
    # Also if it was landed meanwhile.
    land_table(table, topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    with pytest.raises(Refused, match="the topic was re-created"):
        preview(reading(kafka.source, topic), store)


def test_files_that_end_before_what_was_read_from_the_broker_are_waited_for(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic, landing = new_topic(kafka), f"{store.root}/topics"
    sent = pa.table({"tail": pa.array(TAILS_ENDS, pa.string()), "n": pa.array(range(20), pa.int64())})
    land_table(sent, topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    produce(kafka, topic, views(TAILS_ENDS))
    produce(kafka, topic, views(TAILS_ENDS, 20))
    published(store, reading(kafka.source, topic), tmp_path)
    with pytest.raises(Refused, match="but it was read from its broker up to") as refused:
        preview(reading(landing, topic), store)
    findings = refused.value.findings
    assert {finding.kind for finding in findings} == {Kind.STREAM_RESET}
    # To forget what was read would count it twice.
    assert {finding.then for finding in findings} == {
        "wait until all that is landed too, or read the stream from its broker until then"
    }
    # As it says.
    more = sent.set_column(1, "n", pa.array(range(20, 40), pa.int64()))
    land_table(more, topic, landing, key="tail", partitions=2)
    land_table(more.set_column(1, "n", pa.array(range(40, 60), pa.int64())), topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    assert numbers(store) == list(range(60))


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
