"""Leader epochs: whether the records before an offset are still those that were planned.

A leader that lacks records may be elected ("unclean"). It writes other records under their offsets, and soon the end of
the log does not show it. But each leader has an epoch, and knows where the records of each epoch ended. If those up to
the planned epoch end before the planned offset, records were replaced (KIP-101, KIP-320).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coset.sources.kafka.cluster import ANSWERS_WITHIN_SECONDS, Cluster
from coset.sources.kafka.topics import Log, Position
from partitioning.model.read_ends import End
from partitioning.model.stage_inputs import PlannedPartition

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
