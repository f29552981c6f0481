"""Pinned topics: whether a broker still holds what was planned, and the findings if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coset.sources.kafka.cluster import Cluster
from coset.sources.kafka.epochs import replaced
from coset.sources.kafka.topics import Log, describe, logs
from partitioning.commands import Command
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.sources import KafkaSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream


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
