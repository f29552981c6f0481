"""`coset inspect` of a topic in its broker: what it prints runs as it is, in a repository that `coset init` writes."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from demo.kafka_server import KafkaServer
from tests import forked
from tests.commands import coset, refused, succeeded
from tests.kafka import Record, new_topic, produce, remove_before

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
