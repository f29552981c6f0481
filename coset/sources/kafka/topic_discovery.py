"""Discovery of topics in their brokers: log start and end offset of each partition, fixed in the plan,
and a sample of the records between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message, TopicPartition

from coset.sources.kafka.cluster import Cluster, Log, Topic, describe, logs
from coset.sources.kafka.message_values import columns_of_records
from coset.sources.kafka.pinned_topics import replaced
from coset.sources.known import KnownStream
from partitioning.commands import Forget, Then
from partitioning.errors import CosetError, Finding, Refused, Unreachable, refuse
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.sources import KafkaSource
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile, Stream
from partitioning.packed_rows import PackedRows

# The most bytes that a broker sends of a partition at once; a larger record comes alone.
_BYTES_AT_ONCE = 1 << 16
_WITHIN_SECONDS = 5.0
_RECORDS_AT_ONCE = 1000


def discover(streams: Sequence[tuple[Stream, KafkaSource]], ends: Ends = NOTHING) -> tuple[Discovered, ...]:
    """What each topic holds behind `ends`, and its columns.

    If retention removed unread records, the log start offset shows it. Raises Refused, with all findings, if a topic is
    missing, was created anew, has other partitions than declared, ends before what is committed, or has values of
    unknown columns; Unreachable if brokers or the registry do not answer.
    """
    findings, unreachable, discovered = list[Finding](), list[Finding](), list[Discovered]()
    clusters = {source: Cluster(source) for _, source in streams}
    for stream, source in streams:
        try:
            discovered.append(_Discovery(stream, clusters[source], ends).run())
        except Unreachable as error:
            unreachable.extend(error.findings)
        except CosetError as error:
            findings.extend(error.findings)
    if unreachable:
        raise Unreachable(*unreachable)
    refuse(findings)
    return tuple(discovered)


class _Discovery:
    """The discovery of one stream."""

    def __init__(self, stream: Stream, cluster: Cluster, ends: Ends) -> None:
        self._stream = stream
        self._cluster = cluster
        self._known = KnownStream.by(stream, ends)
        self._before = ends.stream(stream.name)
        self._read_whole = ends.is_read_whole(stream)
        self._where = cluster.source.uri(stream.name)

    def run(self) -> Discovered:
        stream = self._stream
        topic = describe(self._cluster, stream.name)
        self._check(topic)
        columns = columns_of_records(stream, self._known.columns)
        found = logs(self._cluster, stream.name, range(stream.partitions))
        self._check_what_was_read(found)
        starts = {number: self._start(number, log) for number, log in found.items()}
        unread = {number: max(self._committed(number) or 0, log.start) for number, log in found.items()}
        waiting = {number: start for number, start in unread.items() if start < found[number].end}
        samples = sample(self._cluster, stream.name, waiting)
        partitions = (
            self._partition(number, log, starts[number], topic, samples.get(number, Sampled()))
            for number, log in sorted(found.items())
        )
        rows = PackedRows.of(DiscoveredPartition, partitions)
        return Discovered(stream.name, columns.all, rows, columns.lacking, (), topic.id, columns.untyped)

    def _start(self, number: int, log: Log) -> int:
        """The offset from which a partition is planned."""
        return log.start if self._read_whole else max(self._committed(number) or 0, log.start)

    def _committed(self, number: int) -> int | None:
        """Up to where a partition was read; None if no batch has known it."""
        end = self._before.end(number) if self._before else None
        return end.end if end else None

    def _partition(self, number: int, log: Log, start: int, topic: Topic, sampled: Sampled) -> DiscoveredPartition:
        path = self._cluster.source.uri(self._stream.name, number)
        size = sampled.size * (log.end - start)
        committed = self._committed(number)
        is_lost = committed is not None and committed < log.start and not self._read_whole
        # Even an empty range shows that unread records are gone.
        is_there = start < log.end or is_lost
        files = (InputFile(path, size, topic.id, start, log.end),) if is_there else ()
        read = self._known.span(number) or Span(start, start)
        return DiscoveredPartition(number, files, read, sampled.written, log.epoch)

    def _check(self, topic: Topic) -> None:
        declared = self._stream.partitions
        findings = []
        if self._before is not None and self._before.topic not in ("", topic.id):
            what = f"the topic was re-created: it has the id {topic.id}, and {self._before.topic} was read before"
            then = (
                "give the new topic another stream name, as its offsets are others, or begin anew with it: ",
                Forget(self._known.pipeline, self._stream.name),
                "; if it goes on with the same offsets, as a mirror may: ",
                Forget(self._known.pipeline, self._stream.name, keep_offsets=True),
            )
            findings.append(self._found(Kind.STREAM_RESET, what, then, topic=topic.id, read=self._before.topic))
        if topic.partitions != declared:
            what = f"the topic has {topic.partitions} partitions, but {declared} are declared"
            findings.append(
                self._found(
                    Kind.PARTITIONS,
                    what,
                    f"declare partitions={topic.partitions}; docs/internals/cosets.md#changing-counts says how",
                    partitions=topic.partitions,
                    declared=declared,
                )
            )
        refuse(findings)

    def _check_what_was_read(self, found: Mapping[int, Log]) -> None:
        whats = {
            number: f"the log of partition {number} ends at {log.end}, but {self._committed(number)} is committed: "
            "records were lost that have been read"
            for number, log in found.items()
            if log.end < (self._committed(number) or 0)
        }
        read = self._before.ends if self._before else ()
        whats |= {
            number: f"in partition {number}, records before {self._committed(number)}, which is committed, were lost "
            "with a leader, and others have their offsets now"
            for number in sorted(replaced(self._cluster, self._stream.name, read, found))
        }
        then = "find out what the cluster has lost; then give the topic another stream name, or restore it"
        if whats:
            raise Refused(
                *(self._found(Kind.STREAM_RESET, what, then, partition=number) for number, what in whats.items())
            )

    def _found(self, kind: Kind, what: str, then: Then, **values: object) -> Finding:
        return Finding.of(
            kind, f"{self._stream.name}: {what}", self._where, then, **{"stream": self._stream.name, **values}
        )


@dataclass(slots=True)
class Sampled:
    """Sampled records of a partition: their number, bytes, and the time of the first."""

    records: int = 0
    bytes: int = 0
    written: datetime | None = None

    def add(self, message: Message) -> None:
        """Take in a record."""
        kind, milliseconds = message.timestamp()
        if not self.records and kind != TIMESTAMP_NOT_AVAILABLE:
            self.written = datetime.fromtimestamp(milliseconds / 1000, UTC)
        self.records += 1
        self.bytes += len(message.key() or b"") + len(message.value() or b"")

    @property
    def size(self) -> int:
        """The mean size of a record, 1 if there is none to look at."""
        return max(1, self.bytes // self.records) if self.records else 1


def sample(cluster: Cluster, topic: str, starts: Mapping[int, int]) -> Mapping[int, Sampled]:
    """The first records of partitions from these offsets on. Partitions that do not answer in time are left out: this
    is an estimate, and readers report errors."""
    seen: dict[int, Sampled] = {}
    if not starts:
        return seen
    waiting = set(starts)
    more = {"max.partition.fetch.bytes": str(_BYTES_AT_ONCE), "queued.min.messages": "1"}
    consumer = cluster.consumer(more=more)
    until = time.monotonic() + _WITHIN_SECONDS
    try:
        consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
        while waiting and time.monotonic() < until:
            for message in consumer.consume(_RECORDS_AT_ONCE, timeout=0.1):
                number = message.partition()
                if message.error() is None and number is not None:
                    seen.setdefault(number, Sampled()).add(message)
                waiting.discard(-1 if number is None else number)
    finally:
        consumer.close()
    return seen
