"""Topics of a test's own in a real broker, their producers, and pipelines that read them there."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline

COLUMNS = {"n": "BIGINT"}
TAILS = [f"N{number}" for number in range(40)]

_SILENT = logging.getLogger("tests.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

# A broker ends with the thread that started it. This one stays.
_STAYS = ThreadPoolExecutor(1)

Record = tuple[bytes | str | None, Any]


def start_again(broker: KafkaServer) -> None:
    """Start a broker that was stopped. A thread of a task may call this."""
    _STAYS.submit(broker.start).result()


def new_topic(kafka: KafkaServer, partitions: int = 2, **config: str) -> str:
    """A topic without records, of a name of its own."""
    name = f"views_{uuid.uuid4().hex[:8]}"
    create(kafka, name, partitions, **config)
    return name


def create(kafka: KafkaServer, name: str, partitions: int, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with admin(kafka) as client:
        client.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()


def grow(kafka: KafkaServer, name: str, partitions: int) -> None:
    with admin(kafka) as client:
        client.create_partitions([NewPartitions(name, partitions)])[name].result()


@contextmanager
def admin(kafka: KafkaServer) -> Iterator[AdminClient]:
    """A client, which has to live until its answers are there."""
    settings: dict[str, Any] = {"bootstrap.servers": kafka.address, "logger": _SILENT}
    yield AdminClient(settings)


def remove_before(kafka: KafkaServer, topic: str, partition: int, offset: int) -> None:
    """Remove what lies before an offset, as retention does."""
    with admin(kafka) as client:
        place = TopicPartition(topic, partition, offset)
        client.delete_records([place])[place].result()


def deny(kafka: KafkaServer, topic: str, operation: AclOperation) -> None:
    """Forbid everybody to do something with a topic."""
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", operation, AclPermissionType.DENY
    )
    others = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
    with admin(kafka) as client:
        for answer in client.create_acls([rule, others]).values():
            answer.result()


def delete(kafka: KafkaServer, topic: str) -> None:
    with admin(kafka) as client:
        client.delete_topics([topic])[topic].result()
        while topic in client.list_topics(timeout=10).topics:
            time.sleep(0.05)


def produce(
    kafka: KafkaServer,
    topic: str,
    records: Iterable[Record],
    *,
    partition: int | None = None,
    partitioner: str = "murmur2_random",
) -> None:
    """Write records with these keys and values; values that are no bytes are written as JSON."""
    producer = Producer({"bootstrap.servers": kafka.address, "partitioner": partitioner, "logger": _SILENT})
    _write(producer, topic, records, partition)


def _wait_for_markers(kafka: KafkaServer, topic: str) -> None:
    """The coordinator answers before it writes the markers of a transaction that ended."""
    with admin(kafka) as client:
        numbers = client.list_topics(topic, timeout=10).topics[topic].partitions
        newest = OffsetSpec.latest()
        ends = {TopicPartition(topic, number): newest for number in numbers}

        def ended(isolation: IsolationLevel) -> list[int]:
            answers = client.list_offsets(ends, isolation_level=isolation)
            return [answers[place].result().offset for place in ends]

        until = time.monotonic() + 30
        while ended(IsolationLevel.READ_COMMITTED) != ended(IsolationLevel.READ_UNCOMMITTED):
            assert time.monotonic() < until, f"a transaction in {topic} did not end"
            time.sleep(0.02)


@contextmanager
def transactions(kafka: KafkaServer, topic: str) -> Iterator[Callable[[Iterable[Record], str], None]]:
    """Writes records in a transaction that it then lets "commit" or "abort", or leaves "open"."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.address,
            "transactional.id": uuid.uuid4().hex,
            "partitioner": "murmur2_random",
            "logger": _SILENT,
        }
    )
    producer.init_transactions(30)
    open_one = False

    def write(records: Iterable[Record], then: str) -> None:
        nonlocal open_one
        producer.begin_transaction()
        _write(producer, topic, records, None)
        open_one = then == "open"
        if then == "commit":
            producer.commit_transaction(30)
        elif then == "abort":
            producer.abort_transaction(30)
        if not open_one:
            _wait_for_markers(kafka, topic)

    yield write
    if open_one:
        producer.abort_transaction(30)


def views(tails: Iterable[str], first: int = 0) -> list[Record]:
    """A view of each, with a number."""
    return [(tail, {"n": number}) for number, tail in enumerate(tails, first)]


def counted(kafka: KafkaServer, topic: str, partitions: int = 2, **declared: Any) -> Pipeline:
    """A pipeline that counts the views of each tail and adds up their numbers."""
    made = Pipeline("counted", source=kafka.source)
    told = {"format": "json", "columns": COLUMNS} | declared
    stream = made.stream(topic, key="tail", partitions=partitions, **told)
    stream.aggregate("count(*) AS views, sum(n)::BIGINT AS n").write("counted")
    return made


def _write(producer: Producer, topic: str, records: Iterable[Record], partition: int | None) -> None:
    errors = []

    def written(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    place: dict[str, Any] = {} if partition is None else {"partition": partition}
    for key, value in records:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, key=key, value=data, on_delivery=written, **place)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors
