"""Kafka Streams: an inner join within a window that has all records, on topics of a real broker."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.noticed.outcome import Outcome, Run
from bench.noticed.topics import KEY, PARTITIONS, TOPICS, Rows, Topics
from demo.kafka_jars import jars_of, java
from demo.kafka_server import KafkaServer, start_kafka

_HERE = Path(__file__).parent
_POM, _PROGRAM = _HERE / "streams.pom.xml", _HERE / "Joined.java"
# What soon ends is not worth optimising.
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_ENDS_WITHIN_SECONDS = 120


@contextmanager
def streams() -> Iterator[Run]:
    """A broker, and an application on it for each join."""
    with TemporaryDirectory(prefix="coset-kafka-") as folder:
        server = start_kafka(Path(folder))
        try:
            yield partial(_run, server)
        finally:
            server.stop()


def _run(server: KafkaServer, topics: Topics, folder: Path) -> Outcome:
    folder.mkdir(parents=True)
    named = {topic: f"{topics.fault.name.lower()}-{topic}" for topic in TOPICS}
    for topic, records in topics.records.items():
        _produce(server, named[topic], records, TOPICS[topic])
    return Outcome.of(_joined(server, topics.fault.name.lower(), [*named.values()], folder), topics.joined)


def _produce(server: KafkaServer, topic: str, records: pa.Table, number: str) -> None:
    """Write the records into a new topic, each into its partition and in their order."""
    # It has to live until its answer is there.
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "log_level": 0})
    for record in records.to_pylist():
        producer.produce(topic, str(record[number]), record[KEY], record["_partition"])
    assert producer.flush(_ENDS_WITHIN_SECONDS) == 0


def _joined(server: KafkaServer, application: str, topics: list[str], folder: Path) -> Rows:
    out = folder / "rows.txt"
    program = [java(), *_QUICK, "-cp", f"{jars_of(_POM)}/*", str(_PROGRAM)]
    command = [*program, server.address, application, *topics, str(folder / "state"), str(out)]
    subprocess.run(command, check=True, timeout=_ENDS_WITHIN_SECONDS, stdout=subprocess.DEVNULL)
    lines = (line.split() for line in out.read_text().splitlines())
    return Counter((customer, int(order), int(payment)) for customer, order, payment in lines)
