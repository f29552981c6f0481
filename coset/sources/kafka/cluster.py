"""A Kafka cluster: clients that never choose an offset by themselves, their errors, and the groups in which positions
are committed for other tools. Topics as brokers describe them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]  # as its documentation has it

from coset.sources.kafka.properties import PROPERTIES, properties
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.model.offsets import StreamPartition
from partitioning.model.sources import KafkaSource

# How long a broker has to answer, and how often it is asked in that time. It is longer than a cluster needs to notice a
# lost broker.
ANSWERS_WITHIN_SECONDS = 15.0
_TRIES = 3

Answer = TypeVar("Answer")

_AGAIN = (
    "run the same command again; if it stays so, check the brokers' addresses, "
    f"and security.protocol in the file that {PROPERTIES} names"
)
_DENIED = frozenset(
    (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    )
)
# OpenSSL's error if a broker ends the handshake, for instance because it wants another certificate. The client only
# sees a broken connection.
_ALERT = "SSL alert number"
# These override the properties: nothing is committed or reset, and no uncommitted record is read.
_READING = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
}
_SILENT = logging.getLogger("coset.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Cluster:
    """The brokers of a source."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source
        self._properties = properties().clients
        self._denied: KafkaError | None = None
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """A client for questions about topics and groups. Raises Refused if a property is not accepted."""
        if self._admin is None:
            try:
                self._admin = AdminClient(self._settings({}))
            except KafkaException as error:
                raise self._not_accepted(error) from None
        return self._admin

    def ask(self, question: Callable[[AdminClient, float], Answer]) -> Answer:
        """The answer to a request within this many seconds. If there is none, a new client asks again.

        A client may wait for a lost broker for ever. Raises KafkaException, or Refused as `admin` does.
        """
        for left in reversed(range(_TRIES)):
            try:
                return question(self.admin, ANSWERS_WITHIN_SECONDS / _TRIES)
            except KafkaException as error:
                # The client reports broken connections only when polled.
                self.admin.poll(0)
                if not left or error.args[0].code() != KafkaError._TIMED_OUT or self._denied is not None:
                    raise
                self._admin = None
        raise AssertionError

    def consumer(self, group: str = "coset", more: Mapping[str, str] | None = None) -> Consumer:
        """A client for records, of a group that it never joins. Raises Refused if a property is not accepted."""
        try:
            return Consumer(self._settings({"group.id": group, **(more or {}), **_READING}))
        except KafkaException as error:
            raise self._not_accepted(error) from None

    def error(self, error: KafkaException | KafkaError, what: str, where: str) -> CosetError:
        """A client's error as Coset's: Refused if access is denied, else Unreachable."""
        said: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
        if self._admin is not None:
            # The client reports broken connections only when polled.
            self._admin.poll(0)
        denied = said if _is_denied(said) else self._denied
        if denied is not None:
            if denied.code() == KafkaError._SSL or _ALERT in denied.str():
                then = f"check, in the file that {PROPERTIES} names, ssl.ca.location, and what else begins with ssl."
                what = f"{what}: the broker's certificate, or that of who asks, is not accepted ({denied.name()})"
                return Refused.of(Kind.BROKER_DENIED, what, where, then, error=denied.name(), asked=where)
            then = f"check the credentials in the file that {PROPERTIES} names, and the brokers' access rules"
            return Refused.of(
                Kind.BROKER_DENIED,
                f"{what}: the broker denied access ({denied.name()})",
                where,
                then,
                error=denied.name(),
                asked=where,
            )
        return Unreachable.of(
            Kind.BROKER_UNREACHABLE, f"{what}: {said.name()}", where, _AGAIN, error=said.name(), asked=what
        )

    def check_accepted(self, what: str, where: str) -> None:
        """Raises Refused if a broker has rejected the client meanwhile."""
        if self._denied is not None:
            raise self.error(self._denied, what, where)

    def _settings(self, own: Mapping[str, str]) -> dict[str, Any]:
        return {
            "log.connection.close": "false",
            **self._properties,
            "bootstrap.servers": self.source.servers,
            "logger": _SILENT,
            "error_cb": self._hear,
            **own,
        }

    def _hear(self, error: KafkaError) -> None:
        if _is_denied(error):
            self._denied = error

    def _not_accepted(self, error: KafkaException) -> Refused:
        # The value beside the name may be a secret.
        name = re.search(r'(?:property[^"]*"|: )([a-z._]+)(?:"| failed)', error.args[0].str())
        which = f"property {name[1]!r} is" if name else "the properties are"
        then = "write them as librdkafka documents them"
        what = f"{which} not accepted by Kafka's client"
        return Refused.of(Kind.BROKER_SETTINGS, what, PROPERTIES, then, property=name[1] if name else None)


def _is_denied(error: KafkaError) -> bool:
    return error.code() in _DENIED or _ALERT in error.str()


def group_of(pipeline: str) -> str:
    """The name of a pipeline's group."""
    return f"coset.{pipeline}"


def commit(source: KafkaSource, group: str, ends: Mapping[StreamPartition, int], note: str) -> None:
    """Commit the next offsets of partitions for a group without members, each with `note`.

    Idempotent. Raises Refused if access is denied, Unreachable if the brokers do not answer.
    """
    cluster, where = Cluster(source), f"group {group!r} at {source.servers}"
    offsets = [TopicPartition(place.stream, place.partition, end, metadata=note) for place, end in sorted(ends.items())]
    # How long the client waits for the group's broker.
    waits = {"session.timeout.ms": str(int(ANSWERS_WITHIN_SECONDS * 1000))}
    # Not with the admin client: if the group's broker goes away, that ends the process (librdkafka 4605).
    with closing(cluster.consumer(group, waits)) as consumer:
        try:
            for committed in consumer.commit(offsets=offsets, asynchronous=False):
                if committed.error is not None:
                    raise cluster.error(committed.error, "the offset is not committed", where)
        except KafkaException as error:
            # The client reports broken connections only when polled.
            consumer.poll(0)
            raise cluster.error(error, "the offsets are not committed", where) from None


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
