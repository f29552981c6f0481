"""Topics in their brokers: what one holds, seen without a declaration of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from coset.sources.formats.change_events import without_schema
from coset.sources.formats.changes_seen import form_in, types_in
from coset.sources.formats.landed_file import PARTITION
from coset.sources.kafka.cluster import Cluster, describe, logs
from coset.sources.kafka.message_values import reader_of
from coset.sources.kafka.properties import PROPERTIES, properties
from coset.sources.keys_seen import plain_keys
from coset.sources.landed_topic import SeenTopic, columns_in, seen_in
from coset.sources.plain_arrays import is_nested
from coset.sources.s3 import AGAIN
from partitioning.errors import Refused, Unreachable
from partitioning.framed_keys import framed_id
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.sources import KafkaSource
from partitioning.model.streams import DELETED, OFFSET, TIMESTAMP, ChangeForm, Column, Format, Stream
from partitioning.values import replace

# A sample has so many of the oldest and of the newest records of a partition, and of all partitions together.
_OF_A_PARTITION = 2_500
_OF_ALL = 200_000
_WITHIN_SECONDS = 30.0
_RECORDS_AT_ONCE = 1000
_NAME_IT = f"name it as schema.registry.url in the file that {PROPERTIES} names"


def look(source: KafkaSource, uri: str, name: str) -> SeenTopic:
    """What a topic holds, by its oldest and newest records.

    Raises as `describe`, Unreachable if none of the records that are there comes, and Refused if nobody can say what
    the keys of a table's changes are.
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
    values, keys = [message.value() for message in messages], [message.key() for message in messages]
    written_as, form, columns, left_out = _values(values, name)
    key = "key" if "key" not in columns else "record_key"
    stream = Stream(name, uri, key, partitions, format=written_as, columns=columns)
    sample = {key: plain_keys(keys)}
    if form:
        stream = replace(stream, changes=form, columns={**columns, DELETED: "BOOLEAN"})
        if parts := _key_columns(keys, source.uri(name)):
            stream, sample = replace(stream, key=""), parts
    elif written_as is Format.JSON:
        listed = [Column(each, of_type) for each, of_type in columns.items()]
        read = reader_of(stream, listed).columns(values, list(columns))
        sample |= {each: array for each, array in zip(columns, read, strict=True) if not is_nested(array.type)}
    if not form:
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


def _values(
    values: Sequence[bytes | None], topic: str
) -> tuple[Format, ChangeForm | None, dict[str, str], dict[str, str]]:
    """The format of record values, and their form if they are change events; the columns that JSON objects or rows
    have, and why others have none."""
    there = [value for value in values if value is not None]
    ids = {framed_id(value): None for value in there}
    if ids and None not in ids and "url" in properties().registry:
        return Format.AVRO, *_in_avro([id for id in ids if id is not None], topic), {}
    if ids and None not in ids:
        return Format.BYTES, None, {}, {"value": f"a schema registry knows what its bytes are: {_NAME_IT}"}
    try:
        objects = [json.loads(value) for value in there]
    except ValueError:
        return Format.BYTES, None, {}, {}
    if not all(isinstance(each, dict) for each in objects):
        return Format.BYTES, None, {}, {}
    form, columns, left_out = seen_in([objects])
    hidden = columns.keys() & ({OFFSET} if form else {TIMESTAMP, OFFSET})
    left_out |= dict.fromkeys(sorted(hidden), "the record has a column of its own of this name")
    columns = {name: kind for name, kind in columns.items() if name not in hidden}
    return (Format.JSON, form, columns, left_out) if columns else (Format.BYTES, None, {}, left_out)


def _in_avro(ids: Sequence[int], topic: str) -> tuple[ChangeForm | None, dict[str, str]]:
    """The form of values by these schemas, if they are change events, and the columns of their rows."""
    from coset.sources.kafka.registry import Registry  # noqa: PLC0415  few topics have one

    registry = Registry(topic)
    schemas = [schema for id in ids if (schema := registry.schema(id))]
    forms = {form_in(schema.columns) for schema in schemas}
    form = forms.pop() if len(forms) == 1 else None
    rows = [types_in(schema.columns, schema.parsed, form) for schema in schemas] if form else []
    return form, {name: kind for row in rows for name, kind in row.items() if name != OFFSET}


def _key_columns(keys: Sequence[bytes | None], where: str) -> dict[str, pa.Array]:
    """The columns of a table's keys that are JSON objects; none of those that a registry's serialiser wrote. Raises
    Refused for others."""
    there = [key for key in keys if key is not None]
    with suppress(ValueError, LookupError, TypeError, AttributeError, pa.ArrowException):
        objects = [{} if key is None else dict(json.loads(without_schema(key))) for key in keys]
        names = dict.fromkeys(name for each in objects for name in each)
        if names:
            return {name: pa.array([each.get(name) for each in objects]) for name in names}
    what, then = "they have no key", "give the table a primary key, or name columns in Debezium's message.key.columns"
    if there and None in {framed_id(key) for key in there}:
        what = "their keys are neither JSON objects nor behind a schema registry's ids"
        then = "let JsonConverter or AvroConverter write them, as docs/how-to/debezium.md says"
    elif there and "url" in properties().registry:
        return {}
    elif there:
        what, then = "a schema registry knows what their keys are", _NAME_IT
    raise Refused.of(Kind.KEYS_DO_NOT_MEET, f"the records are a table's changes, and {what}", where, then, topic=where)
