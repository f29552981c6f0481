"""Pinned topics: whether a broker still holds what was planned, and the findings if not. Leader epochs: whether the
records before an offset are those that were planned. A second look: another consumer reads the gaps that readers saw.

Leader epochs: whether the records before an offset are still those that were planned. A leader that lacks records may
be elected ("unclean"). It writes other records under their offsets, and soon the end of the log does not show it. But
each leader has an epoch, and knows where the records of each epoch ended. If those up to the planned epoch end before
the planned offset, records were replaced (KIP-101, KIP-320).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coset.sources.kafka.cluster import ANSWERS_WITHIN_SECONDS, Cluster, Log, Position, describe, logs
from partitioning.commands import Command
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.read_ends import End
from partitioning.model.sources import KafkaSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream

_WAIT_SECONDS = 0.1
_UNTIL_IT_FETCHES_SECONDS = 0.01
# The answer comes before the first record, so that no more is fetched.
_LITTLE = {"max.partition.fetch.bytes": "65536", "queued.min.messages": "1", "fetch.wait.max.ms": "10"}
# The client resets offsets for several reasons; only the text tells which.
_ANSWERS = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
_WHAT = "whether records were replaced cannot be asked for"


def doubtful(planned: Iterable[End | PlannedPartition], found: Mapping[int, Log]) -> Mapping[int, Position]:
    """The positions to check: planned ends of partitions that have had another leader since.

    >>> planned = PlannedPartition(0, beginning=0, committed=0, start=0, end=20, bytes=1, files=(), epoch=4)
    >>> doubtful([planned], {0: Log(0, 30, epoch=4)}), doubtful([planned], {0: Log(0, 30, epoch=6)})
    ({}, {0: Position(offset=20, epoch=4)})
    """
    ends = ((one, found[one.partition]) for one in planned if one.partition in found)
    return {
        one.partition: Position(one.end, one.epoch)
        for one, log in ends
        if 0 <= one.epoch != log.epoch and max(log.start, 1) <= one.end <= log.end
    }


def replaced(
    cluster: Cluster, name: str, planned: Iterable[End | PlannedPartition], found: Mapping[int, Log]
) -> frozenset[int]:
    """The partitions where records before the planned end were replaced.

    `found` has their logs now. Raises Refused if access is denied, Unreachable if leaders do not answer.
    """
    positions = doubtful(planned, found)
    if not positions:
        return frozenset()
    places = [TopicPartition(name, number, at.offset, leader_epoch=at.epoch) for number, at in positions.items()]
    until = time.monotonic() + ANSWERS_WITHIN_SECONDS
    with closing(cluster.consumer(more=_LITTLE)) as consumer:
        consumer.assign(places)
        try:
            for place in places:
                _seek(consumer, place, until)
            return _answers(cluster, consumer, name, set(positions), until)
        except KafkaException as error:
            raise cluster.error(error, _WHAT, cluster.source.uri(name)) from None


def _seek(consumer: Consumer, place: TopicPartition, until: float) -> None:
    """Seek: the client asks for epochs when it seeks, but not where it starts."""
    while True:
        try:
            return consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE or time.monotonic() > until:
                raise
        time.sleep(_UNTIL_IT_FETCHES_SECONDS)


def _answers(cluster: Cluster, consumer: Consumer, name: str, waiting: set[int], until: float) -> frozenset[int]:
    found = set[int]()
    while waiting:
        for message in consumer.consume(len(waiting), timeout=_WAIT_SECONDS):
            error, number = message.error(), message.partition()
            if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaException(error)
            if number in waiting and (error is None or error.code() in _ANSWERS):
                waiting.remove(number)
                if error is not None and _TRUNCATED in error.str():
                    found.add(number)
        cluster.check_accepted(_WHAT, cluster.source.uri(name))
        if waiting and time.monotonic() > until:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return frozenset(found)


def removed(partition: StreamPartition, planned: Span, log: Log, where: str, anew: Command) -> Finding | None:
    """The finding that a part of the planned range is no longer in the log, if so."""
    if log.start > planned.start:
        gone = OffsetRange(partition, planned.start, min(log.start, planned.end))
        what = f"the broker's retention has removed {gone} since the batch was planned"
        retain = ("let the topic retain more; ", anew, " names the loss, and a backfill can begin later")
        return Finding.of(Kind.STREAM_LOST, what, where, retain, gone=gone)
    if log.end < planned.end:
        gone = OffsetRange(partition, max(log.end, planned.start), planned.end)
        what = f"the log ends at {log.end}, before {gone}, which was planned"
        then = "find out what the cluster has lost; what is read again may not be what was there"
        return Finding.of(Kind.STREAM_RESET, what, where, then, end=log.end, gone=gone)
    return None


def recreated(topic: str, planned: str, where: str) -> Finding | None:
    """The finding that the topic is not the planned one, if so."""
    if topic == planned:
        return None
    what = f"the topic was re-created since the batch was planned: it has the id {topic}, planned is {planned}"
    then = "give the new topic another stream name; its offsets are others"
    return Finding.of(Kind.STREAM_RESET, what, where, then, topic=topic, planned=planned)


def not_as_planned(stream: PlannedStream, source: KafkaSource, anew: Command, *, were_read: bool) -> Iterator[Finding]:
    """Findings for what the brokers no longer hold of what was planned of a stream.

    A reader itself notices whether its range is there. So if ranges `were_read`, what retention removes later does not
    matter; a topic created anew or a truncated log does, because others may have read otherwise. Raises Unreachable if
    brokers do not answer.
    """
    planned = {partition.partition: partition for partition in stream.partitions if _held(partition)}
    if not planned:
        return
    cluster, where = Cluster(source), source.uri(stream.name)
    try:
        topic = describe(cluster, stream.name)
    except Refused as refusal:
        yield from refusal.findings
        return
    if finding := recreated(topic.id, stream.topic, where):
        yield finding
        return
    found = logs(cluster, stream.name, planned)
    for number, log in found.items():
        log = replace(log, start=0) if were_read else log
        held = _held(planned[number])
        assert held is not None
        place = StreamPartition(stream.name, number)
        if finding := removed(place, held, log, source.uri(stream.name, number), anew):
            yield finding
    for number in sorted(replaced(cluster, stream.name, planned.values(), found)):
        what = (
            f"records before {planned[number].end} were lost with a leader since the batch was planned, "
            "and others have their offsets now"
        )
        then = (
            "find out what the cluster has lost; ",
            anew,
            " reads what is there now, and a backfill can begin later",
        )
        yield Finding.of(Kind.STREAM_LOST, what, source.uri(stream.name, number), then, end=planned[number].end)


def _held(partition: PlannedPartition) -> Span | None:
    """What the broker held of it at planning. None if there is nothing to read."""
    spans = [Span(max(file.start, partition.start), min(file.end, partition.end)) for file in partition.files]
    spans = [span for span in spans if span.start < span.end]
    return Span(spans[0].start, spans[-1].end) if spans else None


# Only the first record is needed.
_WHAT_GAPS = "the gaps in a topic cannot be looked into"


def first_records(
    source: KafkaSource, topic: str, gaps: Mapping[int, Sequence[Span]]
) -> Mapping[int, Sequence[tuple[Span, int | None]]]:
    """The first record at or after the start of each gap, by partition, None if there is none. Leaves out gaps that
    retention has removed since.

    Raises Refused if access is denied, Unreachable if brokers do not answer.
    """
    cluster, found = Cluster(source), dict[int, list[tuple[Span, int | None]]]()
    begins = {number: log.start for number, log in logs(cluster, topic, gaps).items()}
    left = {number: [gap for gap in wanted if begins[number] < gap.end] for number, wanted in gaps.items()}
    with closing(cluster.consumer(more=_LITTLE)) as consumer:
        while places := {number: max(wanted[0].start, begins[number]) for number, wanted in left.items() if wanted}:
            try:
                for number, first in _first(cluster, consumer, topic, places):
                    found.setdefault(number, []).append((left[number].pop(0), first))
            except KafkaException as error:
                raise cluster.error(error, _WHAT_GAPS, source.uri(topic)) from None
    return found


def _first(
    cluster: Cluster, consumer: Consumer, topic: str, places: Mapping[int, int]
) -> Iterator[tuple[int, int | None]]:
    """The first record of each partition from its position on. One position for each partition."""
    consumer.assign([TopicPartition(topic, number, start) for number, start in places.items()])
    waiting, until = set(places), time.monotonic() + ANSWERS_WITHIN_SECONDS
    while waiting:
        for message in consumer.consume(len(waiting), timeout=_WAIT_SECONDS):
            error, number = message.error(), message.partition()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise KafkaException(error)
                continue
            if number in waiting:
                waiting.remove(number)
                yield number, message.offset() if error is None else None
        cluster.check_accepted(_WHAT_GAPS, cluster.source.uri(topic))
        if waiting and time.monotonic() > until:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
