"""The demo's flights and planes in a Kafka broker: produced as JSON, in the parts in which they land as files."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coset.sources.file_columns import columns_of
from demo.kafka_server import KafkaServer
from demo.landing import part_of, read
from partitioning.errors import Unreachable
from partitioning.kinds import Kind
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Format, Stream
from partitioning.values import replace

_WITHIN_SECONDS = 60


def make_topics(kafka: KafkaServer, streams: tuple[Stream, ...]) -> None:
    """Make the topics of streams. Raises Unreachable."""
    client = AdminClient({"bootstrap.servers": kafka.address})
    topics = [NewTopic(stream.name, stream.partitions, 1) for stream in streams]
    try:
        for made in client.create_topics(topics).values():
            made.result(_WITHIN_SECONDS)
    except KafkaException as error:
        raise _failed(kafka, error.args[0].str()) from error


def produce(kafka: KafkaServer, streams: tuple[Stream, ...], part: int) -> Mapping[str, int]:
    """Write one part of the year to its topics. Returns how many records each got. Raises Unreachable."""
    # As Kafka's own producers do; librdkafka places keys otherwise by default.
    producer = Producer({"bootstrap.servers": kafka.address, "partitioner": "murmur2_random", "linger.ms": 50})
    counts = {stream.name: _produce(producer, stream, part) for stream in streams}
    if producer.flush(_WITHIN_SECONDS):
        raise _failed(kafka, "it did not take all records")
    return counts


def in_broker(stream: Stream, kafka: KafkaServer) -> Stream:
    """The stream as it is declared where its topic is read from the broker."""
    columns = columns_of(read(stream.name).schema).columns
    values = {column.name: column.type for column in columns if column.name != stream.key}
    return checked(replace(stream, source=kafka.source, format=Format.JSON, columns=values))


def _produce(producer: Producer, stream: Stream, part: int) -> int:
    table = _of_part(stream.name, part)
    encode = msgspec.json.encode
    for row in table.to_pylist():
        key = row.pop(stream.key)
        producer.produce(stream.name, key=key, value=encode(row))
        producer.poll(0)
    return len(table)


def _of_part(stream: str, part: int) -> pa.Table:
    table = read(stream)
    if stream != "flights":
        return table if part == 0 else table.slice(0, 0)
    return table.filter(pc.equal(pa.array([part_of(month) for month in table["month"].to_pylist()]), part))


def _failed(kafka: KafkaServer, said: str) -> Unreachable:
    return Unreachable.of(
        Kind.DEMO, f"the broker failed: {said}", kafka.address, "run the same command again", address=kafka.address
    )
