"""Topics in their brokers: what one holds, seen without a declaration of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition
from msgspec import UNSET

from coset.sources.framed_sample import plain_keys
from coset.sources.kafka.cluster import Cluster
from coset.sources.kafka.message_values import reader_of
from coset.sources.kafka.properties import PROPERTIES, properties
from coset.sources.kafka.topics import describe, logs
from coset.sources.landed_topic import PARTITION, SeenTopic, columns_in, json_columns
from coset.sources.plain_arrays import is_nested
from coset.sources.s3 import AGAIN
from partitioning.errors import Unreachable
from partitioning.framed_keys import framed_id
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.sources import KafkaSource
from partitioning.model.streams import OFFSET, TIMESTAMP, Column, Format, Stream

# A sample has so many of the oldest and of the newest records of a partition, and of all partitions together.
_OF_A_PARTITION = 2_500
_OF_ALL = 200_000
_WITHIN_SECONDS = 30.0
_RECORDS_AT_ONCE = 1000


def look(source: KafkaSource, uri: str, name: str) -> SeenTopic:
    """What a topic holds, by its oldest and newest records.

    Raises as `describe`, and Unreachable if none of the records that are there comes.
    """
    cluster = Cluster(source)
    partitions = describe(cluster, name).partitions
    found = logs(cluster, name, range(partitions))
    most = max(100, min(_OF_A_PARTITION, _OF_ALL // partitions))
    first = {number: Span(log.start, min(log.end, log.start + most)) for number, log in found.items()}
    last = {number: Span(max(first[number].end, log.end - most), log.end) for number, log in found.items()}
    messages = [message for spans in (first, last) for message in _records(cluster, name, spans)]
    if not messages and any(log.start < log.end for log in found.values()):
        what = f"no record came within {_WITHIN_SECONDS:.0f} seconds"
        raise Unreachable.of(Kind.BROKER_UNREACHABLE, what, source.uri(name), AGAIN, topic=name)
    values = [message.value() for message in messages]
    written_as, columns, left_out = _values(values)
    key = "key" if "key" not in columns else "record_key"
    stream = Stream(name, uri, key, partitions, format=written_as, columns=columns or UNSET)
    sample = {key: plain_keys([message.key() for message in messages])}
    if written_as is Format.JSON:
        listed = [Column(each, of_type) for each, of_type in columns.items()]
        read = reader_of(stream, listed).columns(values, list(columns))
        sample |= {each: array for each, array in zip(columns, read, strict=True) if not is_nested(array.type)}
    sample[TIMESTAMP] = pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC"))
    sample[PARTITION] = pa.array([message.partition() for message in messages], pa.int64())
    table = pa.table(sample if messages else {})
    return SeenTopic(stream, tuple(columns_in(table)), table, left_out, 0, ())


def _records(cluster: Cluster, name: str, spans: Mapping[int, Span]) -> Iterable[Message]:
    """The records of these ranges that come in time."""
    waiting = {number: span for number, span in spans.items() if span.start < span.end}
    messages, until = list[Message](), time.monotonic() + _WITHIN_SECONDS
    consumer = cluster.consumer()
    try:
        consumer.assign([TopicPartition(name, number, span.start) for number, span in waiting.items()])
        while waiting and time.monotonic() < until:
            for message in consumer.consume(_RECORDS_AT_ONCE, timeout=0.1):
                number, offset, error = message.partition(), message.offset(), message.error()
                if number not in waiting or offset is None:
                    continue
                if error is None and offset < waiting[number].end:
                    messages.append(message)
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if at_end or (error is None and offset + 1 >= waiting[number].end):
                    del waiting[number]
                    consumer.incremental_unassign([TopicPartition(name, number)])
        cluster.check_accepted("the topic cannot be read", cluster.source.uri(name))
    finally:
        consumer.close()
    return messages


def _values(values: Sequence[bytes | None]) -> tuple[Format, dict[str, str], dict[str, str]]:
    """The format of record values, the columns that JSON objects have, and why others have none."""
    there = [value for value in values if value is not None]
    framed = bool(there) and all(framed_id(value) is not None for value in there)
    if framed and "url" in properties().registry:
        return Format.AVRO, {}, {}
    if framed:
        then = f"name it as schema.registry.url in the file that {PROPERTIES} names"
        return Format.BYTES, {}, {"value": f"a schema registry knows what its bytes are: {then}"}
    try:
        objects = [json.loads(value) for value in there]
    except ValueError:
        return Format.BYTES, {}, {}
    if not all(isinstance(each, dict) for each in objects):
        return Format.BYTES, {}, {}
    columns, left_out = json_columns([objects])
    hidden = columns.keys() & {TIMESTAMP, OFFSET}
    left_out |= dict.fromkeys(sorted(hidden), "the record has a column of its own of this name")
    columns = {name: kind for name, kind in columns.items() if name not in hidden}
    return (Format.JSON, columns, left_out) if columns else (Format.BYTES, {}, left_out)
