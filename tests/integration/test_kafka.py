"""Batches that read a topic from its broker: planned, run, proved and published as those of landed files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.planning import preview
from demo.kafka_jars import archive, archived, java, kafka_jars
from demo.kafka_server import KafkaServer
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from tests.batches import rows
from tests.kafka import TAILS, counted, new_topic, produce, views
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
