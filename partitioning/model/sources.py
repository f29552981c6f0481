"""Sources: where a stream's records come from, by the URI that its declaration gives, and the names of landed files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.values import Value

_BROKER = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[1-9][0-9]{0,4})")
_KAFKA = "kafka://"
_ICEBERG = "iceberg://"
# A catalogue by its name in PyIceberg's configuration, and a namespace in it.
NAMESPACE = re.compile(r"(?P<catalogue>\w[\w-]*)\.(?P<namespace>\w[\w.-]*)")
# The prefix of a folder's address; the path behind it is not encoded.
FOLDER = "file://"
# Characters with a meaning in URIs, which Delta's log would decode, and those that terminals do not show.
_NOT_IN_PATHS = re.compile(r"[%?#\\\x00-\x1f\x7f]")
_PORTS = range(1, 1 << 16)


class LandedSource(Value, frozen=True):
    """A folder of topics, in S3 or on this machine, landed as files."""

    uri: str


class KafkaSource(Value, frozen=True):
    """A Kafka cluster, by some of its brokers, `host:port` each."""

    brokers: tuple[str, ...]

    @property
    def servers(self) -> str:
        """The brokers, as Kafka's clients expect them."""
        return ",".join(self.brokers)

    def uri(self, topic: str, partition: int | None = None) -> str:
        """The name of a topic or a partition, for people.

        >>> KafkaSource(("broker:9092",)).uri("flights", 3)
        'kafka://broker:9092/flights/3'
        """
        return "/".join([f"{_KAFKA}{self.servers}", topic, *([] if partition is None else [str(partition)])])


class IcebergSource(Value, frozen=True):
    """A namespace of Iceberg tables, behind a catalogue of PyIceberg's configuration: `lake.shop`."""

    place: str

    @property
    def catalogue(self) -> str:
        """The catalogue's name."""
        return self.place.partition(".")[0]

    def uri(self, table: str) -> str:
        """The name of a table, for people.

        >>> IcebergSource("lake.shop").uri("orders")
        'iceberg://lake.shop.orders'
        """
        return f"{_ICEBERG}{self.place}.{table}"

    def identifier(self, table: str) -> str:
        """The name of a table in its catalogue.

        >>> IcebergSource("lake.shop.eu").identifier("orders")
        'shop.eu.orders'
        """
        return f"{self.place.partition('.')[2]}.{table}"


Source = LandedSource | KafkaSource | IcebergSource


def source_of(uri: str) -> Source:
    """The source that a URI names, whether the URI is valid or not.

    >>> source_of("s3://landing/topics"), source_of("kafka://a:9092,b:9092")
    (LandedSource(uri='s3://landing/topics'), KafkaSource(brokers=('a:9092', 'b:9092')))
    """
    if uri.startswith(_ICEBERG):
        return IcebergSource(uri.removeprefix(_ICEBERG).rstrip("/"))
    if not uri.startswith(_KAFKA):
        return LandedSource(uri)
    return KafkaSource(tuple(uri.removeprefix(_KAFKA).rstrip("/").split(",")))


def source_findings(source: Source, where: str) -> Sequence[Finding]:
    """What is wrong with a source as it is written."""
    match source:
        case LandedSource(uri):
            why = why_no_root(uri)
            then = (
                "write it as s3://bucket/topics, kafka://host:port, iceberg://catalogue.namespace, or "
                "Path(__file__).parent / 'folder'"
            )
            return (Finding.of(Kind.DECLARATION, f"source {uri!r} {why}", where, then, uri=uri),) if why else ()
        case KafkaSource(brokers):
            then = "write it as kafka://host:port[,host:port]; what else clients need stands in COSET_KAFKA_PROPERTIES"
            # The text before an @ may be a password.
            return tuple(
                Finding.of(
                    Kind.DECLARATION, f"broker {broker!r} of the source is no host:port", where, then, broker=broker
                )
                for broker in (each.rpartition("@")[2] for each in brokers if not _is_address(each))
            )
        case IcebergSource(place):
            if NAMESPACE.fullmatch(place):
                return ()
            then = "write it as iceberg://catalogue.namespace, with a catalogue of PyIceberg's configuration"
            what = f"source {_ICEBERG + place!r} names no namespace of a catalogue"
            return (Finding.of(Kind.DECLARATION, what, where, then, place=place),)


def address_of(address: str) -> str:
    """An address in the form of the documents. A folder may be given by its absolute path.

    >>> address_of("/home/me/landing/"), address_of("s3://landing/topics")
    ('file:///home/me/landing', 's3://landing/topics')
    """
    return f"{FOLDER}{address.rstrip('/')}" if address.startswith("/") else address


def why_no_root(address: str) -> str | None:
    """Why an address is neither in a bucket nor a folder. None if it is one.

    >>> why_no_root("landing"), why_no_root("file:///landing/../x")
    ('is neither an S3 URI nor the whole path of a folder', "has '..' in it")
    """
    scheme, _, rest = address.partition("://")
    if scheme not in {"s3", "file"} or (scheme == "file" and not rest.startswith("/")):
        return "is neither an S3 URI nor the whole path of a folder"
    bucket, _, path = rest.rstrip("/").partition("/")
    if scheme == "s3" and not bucket:
        return "names no bucket"
    if odd := _NOT_IN_PATHS.search(rest):
        return f"has {odd[0]!r} in it"
    if not path:
        return None if bucket else "is the root of all files"
    # Delta's log would lie at other keys of a bucket than the documents, or at none.
    unclear = {"", ".", ".."} if bucket else {".."}
    part = next((part for part in path.split("/") if part in unclear), None)
    return None if part is None else f"has {part or '//'!r} in it"


def _is_address(broker: str) -> bool:
    match = _BROKER.fullmatch(broker)
    return match is not None and int(match["port"]) in _PORTS


# The first part of a name, before its ending; `+` is in no topic's name.
FILE_NAME = r"(?P<stream>[^/+]+)\+(?P<partition>0|[1-9][0-9]*)\+(?P<start>[0-9]{10,20})"
# The same by the template that Aiven's sinks have unless told otherwise, padded or not.
DASHED_NAME = r"(?P<stream>[^/+]+)-(?P<partition>[0-9]{1,10})-(?P<start>[0-9]{1,20})"
_NAMED = (re.compile(rf"/{FILE_NAME}\.[^/]*$"), re.compile(rf"/{DASHED_NAME}(\.[^/]*)?$"))


def named_file(path: str) -> re.Match[str] | None:
    """What the name at the end of a path says.

    >>> named_file("s3://landing/orders-eu-3-1200.gz")["stream"], named_file("s3://landing/notes.txt")
    ('orders-eu', None)
    """
    return next((match for pattern in _NAMED if (match := pattern.search(path))), None)
