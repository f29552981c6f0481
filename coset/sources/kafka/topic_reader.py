"""Topics as a task reads them from brokers: the planned ranges, assigned, each from start to end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from coset.sources.file_columns import arrow_schema
from coset.sources.formats.change_events import deletes
from coset.sources.kafka.cluster import Cluster, describe, logs
from coset.sources.kafka.decoded_values import tombstones_have_keys_only, without_rows
from coset.sources.kafka.keys import Wrong, keys_of, read_of_key
from coset.sources.kafka.message_values import Values, beside_value, reader_of
from coset.sources.kafka.pinned_topics import recreated, removed
from coset.sources.reader import RAW, WHY, Batch
from partitioning.commands import Replan
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import Span, StreamPartition
from partitioning.model.order import OrderedStream
from partitioning.model.sources import KafkaSource
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import TIMESTAMP, InputFile
from partitioning.model.task_engine import TaskMemory

# If neither a record nor the end comes for so long, the broker is away.
NO_PROGRESS_SECONDS = 60.0
_RECORDS_AT_ONCE = 10_000
_WAIT_SECONDS = 0.5
# Makes batches large enough.
_MORE_SECONDS = 0.02
# The bytes of a record's key and value.
_Written = tuple[bytes | None, bytes | None]
# The broker does not have the requested offset or topic.
_GONE = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class KafkaReader:
    """Reads the ranges of a topic that an order names.

    Raises Refused if a broker no longer holds the ranges as planned or a record does not fit its declaration, and
    Unreachable if there is no progress for a while.
    """

    def __init__(self, ordered: OrderedStream, source: KafkaSource, pipeline: str, memory: TaskMemory) -> None:
        self._declared = ordered.declared
        self._columns = ordered.columns
        self._partitions = ordered.partitions
        self._source = source
        self._pipeline = pipeline
        self._cluster = Cluster(source)
        self._ahead = {"queued.max.messages.kbytes": str(max(1, memory.part // 1024))}

    @property
    def empty(self) -> bool:
        return not any(planned.files for planned in self._partitions)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        types = {column.name: column for column in self._columns}
        return arrow_schema(tuple(types[name] for name in columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        wanted = self.schema(list(dict.fromkeys(columns)))
        values = reader_of(self._declared, self._columns)
        self._check_topic()
        with closing(self._cluster.consumer(more=self._ahead)) as consumer:
            for planned in self._partitions:
                for range_ in planned.files:
                    yield from self._range(consumer, planned, range_, wanted, values)

    def _range(
        self, consumer: Consumer, planned: PlannedPartition, range_: InputFile, wanted: pa.Schema, values: Values
    ) -> Iterator[Batch]:
        """The records of a planned range; last, an empty batch that gives its end."""
        span = Span(max(range_.start, planned.start), min(range_.end, planned.end))
        for messages, reached in self._messages(consumer, planned.partition, span, range_):
            records = self._records(messages, wanted, values, range_.path)
            yield Batch(planned.partition, span.start, span.end, range_.path, records, reached)
        self._check(planned.partition, span, range_)

    def _messages(
        self, consumer: Consumer, number: int, span: Span, range_: InputFile
    ) -> Iterator[tuple[list[Message], int]]:
        """The records of a range, and the offset reached with them.

        The last offsets may have no records. So a record behind the range, or the end of the log, ends it.
        """
        name = self._declared.name
        if span.start < span.end:
            consumer.assign([TopicPartition(name, number, span.start)])
        reached, last_progress = span.start, time.monotonic()
        while reached < span.end:
            messages = list[Message]()
            for message in _received(consumer):
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._check_error(error, number, span, range_)
                    continue
                assert offset is not None
                if error is None and offset < span.end:
                    messages.append(message)
                reached = min(offset + (error is None), span.end)
            self._cluster.check_accepted("the partition cannot be read", range_.path)
            if messages:
                last_progress = time.monotonic()
                yield messages, reached
            elif time.monotonic() - last_progress > NO_PROGRESS_SECONDS:
                raise self._no_progress(number, span, range_)
        yield [], reached

    def _records(self, messages: Sequence[Message], wanted: pa.Schema, values: Values, where: str) -> pa.RecordBatch:
        stream = self._declared
        written = [(message.key(), message.value()) for message in messages]
        # All columns count where records are set aside, so that all readers agree.
        names = [column.name for column in self._columns] if stream.sets_aside else wanted.names
        wrongs: dict[int, str] = {}
        try:
            try:
                columns = self._read(written, names, values)
            except Wrong:
                if not stream.sets_aside:
                    raise
                wrongs = self._wrongs(written, names, values)
                usable = [(None, None) if number in wrongs else one for number, one in enumerate(written)]
                columns = self._read(usable, names, values, wrongs)
        except Wrong as wrong:
            what = f"{stream.name}: offset {messages[wrong.number].offset():,}: {wrong.what}"
            then = wrong.then or 'correct the declaration; or read such values in SQL, from a stream of format="bytes"'
            raise Refused.of(
                Kind.RECORD, what, where, then, stream=stream.name, offset=messages[wrong.number].offset()
            ) from None
        columns[stream.offset] = pa.array([message.offset() for message in messages], pa.int64())
        if TIMESTAMP in wanted.names:
            columns[TIMESTAMP] = pa.array([_written(message) for message in messages], pa.timestamp("ms", "UTC"))
        records = [columns[field.name].cast(field.type) for field in wanted]
        if not wrongs:
            return pa.RecordBatch.from_arrays(records, schema=wanted)
        records.append(pa.array([wrongs.get(number) for number in range(len(messages))], WHY.type))
        raw = [message.value() if number in wrongs else None for number, message in enumerate(messages)]
        records.append(pa.array(raw, RAW.type))
        return pa.RecordBatch.from_arrays(records, schema=pa.schema([*wanted, WHY, RAW]))

    def _wrongs(self, written: Sequence[_Written], names: Sequence[str], values: Values) -> dict[int, str]:
        """The records that are not as declared, by their place, and why."""
        wrongs: dict[int, str] = {}
        for number, one in enumerate(written):
            try:
                self._read([one], names, values)
            except Wrong as wrong:
                wrongs[number] = wrong.what
        return wrongs

    def _read(
        self, written: Sequence[_Written], names: Sequence[str], values: Values, aside: Collection[int] = ()
    ) -> dict[str, pa.Array]:
        """The columns of keys and values, of the records `aside` none. Raises Wrong at the first that is not as
        declared."""
        columns: dict[str, pa.Array] = {}
        if of_value := [name for name in names if name not in beside_value(self._declared)]:
            read = values.columns([self._value(*one) for one in written], of_value)
            columns |= dict(zip(of_value, read, strict=True))
            if tombstones_have_keys_only(self._declared):
                columns = without_rows(written, columns, self._declared)
        if any(name in names for name in read_of_key(self._declared)):
            columns |= keys_of([key for key, _ in written], self._declared, aside)
        return columns

    def _value(self, key: bytes | None, value: bytes | None) -> bytes | None:
        """What a record says. Of changes a tombstone deletes its key: compaction leaves no other record of it."""
        form = self._declared.changes
        if not form or key is None or value is not None or tombstones_have_keys_only(self._declared):
            return value
        return deletes(key, form)

    def _check(self, number: int, span: Span, range_: InputFile) -> None:
        """Raises Refused if what was read may not be what was planned."""
        self._check_topic()
        place = StreamPartition(self._declared.name, number)
        log = logs(self._cluster, place.stream, [number])[number]
        if finding := removed(place, span, log, range_.path, Replan(self._pipeline)):
            raise Refused(finding)

    def _check_topic(self) -> None:
        """Raise Refused if the topic is not the planned one."""
        name = self._declared.name
        planned = next(range_.etag for partition in self._partitions for range_ in partition.files)
        if finding := recreated(describe(self._cluster, name).id, planned, self._source.uri(name)):
            raise Refused(finding)

    def _check_error(self, error: KafkaError, number: int, span: Span, range_: InputFile) -> None:
        """Raises a broker's error that will not pass."""
        if error.code() in _GONE:
            self._check(number, span, range_)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._cluster.error(error, "the partition cannot be read", range_.path)

    def _no_progress(self, number: int, span: Span, range_: InputFile) -> CosetError:
        self._check(number, span, range_)
        what = f"no record came for {NO_PROGRESS_SECONDS:.0f} seconds"
        return self._cluster.error(KafkaError(KafkaError._TIMED_OUT), what, range_.path)


def _received(consumer: Consumer) -> list[Message]:
    """Waits for records and returns them."""
    first = consumer.poll(_WAIT_SECONDS)
    return [] if first is None else [first, *consumer.consume(_RECORDS_AT_ONCE - 1, timeout=_MORE_SECONDS)]


def _written(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
