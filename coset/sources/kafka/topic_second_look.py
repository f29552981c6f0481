"""A second look: another consumer reads the gaps that readers saw."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coset.sources.kafka.cluster import ANSWERS_WITHIN_SECONDS, Cluster
from coset.sources.kafka.topics import logs
from partitioning.model.offsets import Span
from partitioning.model.sources import KafkaSource

# Only the first record is needed.
_LITTLE = {"max.partition.fetch.bytes": "65536", "queued.min.messages": "1", "fetch.wait.max.ms": "10"}
_WAIT_SECONDS = 0.1
_WHAT = "the gaps in a topic cannot be looked into"


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
                raise cluster.error(error, _WHAT, source.uri(topic)) from None
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
        cluster.check_accepted(_WHAT, cluster.source.uri(topic))
        if waiting and time.monotonic() > until:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
