"""Sources: where a stream's records come from, by the URI that its declaration gives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from partitioning.errors import Finding, about
from partitioning.kinds import Kind
from partitioning.values import Value

_BROKER = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[1-9][0-9]{0,4})")
_KAFKA = "kafka://"
_PORTS = range(1, 1 << 16)


class LandedSource(Value, frozen=True):
    """A folder of topics in S3, landed as files."""

    uri: str


class KafkaSource(Value, frozen=True):
    """A Kafka cluster, by some of its brokers, `host:port` each."""

    brokers: tuple[str, ...]

    @property
    def servers(self) -> str:
        """The brokers as Kafka's clients are told them."""
        return ",".join(self.brokers)

    def uri(self, topic: str, partition: int | None = None) -> str:
        """How a topic or a partition of it is named where people see it.

        >>> KafkaSource(("broker:9092",)).uri("flights", 3)
        'kafka://broker:9092/flights/3'
        """
        return "/".join([f"{_KAFKA}{self.servers}", topic, *([] if partition is None else [str(partition)])])


Source = LandedSource | KafkaSource


def source_of(uri: str) -> Source:
    """The source that a URI names, well written or not.

    >>> source_of("s3://landing/topics"), source_of("kafka://a:9092,b:9092")
    (LandedSource(uri='s3://landing/topics'), KafkaSource(brokers=('a:9092', 'b:9092')))
    """
    if not uri.startswith(_KAFKA):
        return LandedSource(uri)
    return KafkaSource(tuple(uri.removeprefix(_KAFKA).rstrip("/").split(",")))


def source_findings(source: Source, where: str) -> Sequence[Finding]:
    """What is wrong with a source as it is written."""
    match source:
        case LandedSource(uri):
            if uri.startswith("s3://"):
                return ()
            then = "write it as s3://bucket/topics, or as kafka://host:port"
            return (Finding(Kind.DECLARATION, f"source {uri!r} is no S3 URI", where, then, about(uri=uri)),)
        case KafkaSource(brokers):
            then = "write it as kafka://host:port[,host:port]; what else clients need stands in COSET_KAFKA_PROPERTIES"
            # A word before an @ may be a password.
            return tuple(
                Finding(
                    Kind.DECLARATION,
                    f"broker {broker!r} of the source is no host:port",
                    where,
                    then,
                    about(broker=broker),
                )
                for broker in (each.rpartition("@")[2] for each in brokers if not _is_address(each))
            )


def _is_address(broker: str) -> bool:
    match = _BROKER.fullmatch(broker)
    return match is not None and int(match["port"]) in _PORTS
