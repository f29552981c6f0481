"""Topics as brokers describe them: id, partition count, and each log with its leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]  # as its documentation has it

from coset.sources.kafka.cluster import Cluster
from partitioning.errors import Refused, Unreachable
from partitioning.kinds import Kind

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. It gets another id if it is deleted and created again."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a partition: the offsets [start, end), and its leader's epoch (KIP-101), -1 if unknown."""

    start: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of a partition, with a leader epoch (KIP-101) no older than the record before it."""

    offset: int
    epoch: int


def describe(cluster: Cluster, name: str) -> Topic:
    """Raises Refused if the topic does not exist or access is denied, Unreachable if no broker answers."""
    where = cluster.source.uri(name)
    asked = TopicCollection([name])
    try:
        topic = cluster.ask(
            lambda client, seconds: client.describe_topics(asked, request_timeout=seconds)[name].result()
        )
    except KafkaException as error:
        if error.args[0].code() in _UNKNOWN:
            then = "correct the stream's name, which is the topic's, or the source"
            raise Refused.of(Kind.TOPIC_UNKNOWN, f"there is no topic {name!r}", where, then, name=name) from None
        raise cluster.error(error, "the topic cannot be looked at", where) from None
    return Topic(str(topic.topic_id), len(topic.partitions))


def logs(cluster: Cluster, name: str, partitions: Iterable[int]) -> Mapping[int, Log]:
    """The log of each partition, up to the first open transaction. Raises as `describe`."""
    numbers = list(partitions)
    starts = _positions(cluster, name, numbers, OffsetSpec.earliest())
    ends = _positions(cluster, name, numbers, OffsetSpec.latest())
    return {n: Log(starts[n].offset, max(starts[n].offset, ends[n].offset), ends[n].epoch) for n in numbers}


def _positions(cluster: Cluster, name: str, numbers: list[int], which: OffsetSpec) -> Mapping[int, Position]:
    if not numbers:
        return {}
    asked = {TopicPartition(name, number): which for number in numbers}

    def listed(client: AdminClient, seconds: float) -> Mapping[int, Position]:
        answers = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=seconds)
        found = {place.partition: _position(answer.result()) for place, answer in answers.items()}
        if min(position.offset for position in found.values()) < 0:
            # For a leader that does not answer, the client returns neither error nor offset.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    where = cluster.source.uri(name)
    try:
        return cluster.ask(listed)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._NOENT:
            then = "start the brokers that hold it, then run the same command again"
            what = "no broker leads a partition"
            raise Unreachable.of(Kind.BROKER_UNREACHABLE, what, where, then, topic=name) from None
        raise cluster.error(error, "the log's offsets cannot be asked for", where) from None


def _position(found: ListOffsetsResultInfo) -> Position:
    return Position(found.offset, -1 if found.leader_epoch is None else found.leader_epoch)
