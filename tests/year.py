"""A year of a topic of orders: its producers, the sink that lands it as files, and all that was ever in it."""

from __future__ import annotations

import io
import json
import logging
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from demo.kafka_server import KafkaServer
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from tests.kafka import admin, grow, new_topic, remove_before
from tests.landed import land_file
from tests.registry import Registry

MURMUR2 = "murmur2_random"
# What librdkafka does unless it is told otherwise: not as Java's producers.
FOREIGN = "consistent_random"
IDLE = 7

_NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
_FRAME = struct.Struct(">bI")
_ARROW = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
_TIME = pa.timestamp("ms", "UTC")
_SILENT = logging.getLogger("tests.year")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Row = tuple[object, ...]


def customers(partitions: int, idle: int | None = None) -> list[str]:
    """Forty customers, of whom none lies in the idle one of so many partitions."""
    names = (f"c-{number}" for number in range(1000))
    return [name for name in names if placement_hash(name, "string") % partitions != idle][:40]


@dataclass(frozen=True)
class Order:
    """A record as it was read: what its value holds, nothing if it is a tombstone."""

    offset: int
    customer: str
    at: datetime
    value: Mapping[str, Any]


class Year:
    """The topic, from its first order on. Each is a minute after the one before."""

    def __init__(self, kafka: KafkaServer, registry: Registry, store: Store) -> None:
        self.partitions = 2
        # Orders are of last year for a broker, which would remove them.
        self.topic = new_topic(kafka, self.partitions, retention_ms="-1")
        self.fields = {"amount": "int"}
        self.orders: list[Order] = []
        self.source = f"{store.root}/topics"
        self._kafka = kafka
        self._registry = registry
        self._minutes = 0
        self._read: dict[int, int] = {}

    @property
    def columns(self) -> list[str]:
        """What a value has beside its amount."""
        return [name for name in self.fields if name != "amount"]

    def field(self, name: str, kind: str) -> None:
        """From now on producers write values with this field, of this type."""
        self.fields[name] = kind

    def order(self, names: Sequence[str], amount: int = 10, partitioner: str = MURMUR2) -> None:
        """An order of each of these customers."""
        self._write(self._producer(partitioner), names, amount)

    def remove(self, names: Sequence[str]) -> None:
        """A tombstone for each of these customers."""
        self._write(self._producer(MURMUR2), names, None)

    def transaction(self, names: Sequence[str]) -> Producer:
        """Orders of a transaction that is open, until the producer commits or aborts it."""
        producer = self._producer(MURMUR2, {"transactional.id": f"{self.topic}-{self._minutes}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._write(producer, names, 1)
        return producer

    def grow(self, partitions: int) -> None:
        grow(self._kafka, self.topic, partitions)
        self.partitions = partitions

    def retain(self, partition: int, offset: int) -> None:
        """Remove what lies before an offset."""
        remove_before(self._kafka, self.topic, partition, offset)

    def read_up_to(self, partition: int) -> int:
        """How far the sink has read a partition."""
        return self._read.get(partition, 0)

    def compact(self, names: Sequence[str]) -> None:
        """Let the broker remove orders of these customers that were overwritten before anybody has read them."""
        self._configure(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0001")
        written, read = 0, 0
        while read == written:
            # Another one begins another segment, and only those before the last are compacted.
            self.order(names, amount=written)
            written += len(names)
            time.sleep(0.5)
            assert written < 60 * len(names), "it was not compacted"
            read = sum(len(orders) for orders in self._consumed().values())
        self._configure(cleanup_policy="delete", segment_ms="604800000", min_cleanable_dirty_ratio="0.5")
        time.sleep(1)

    def land(self) -> None:
        """Land what the sink has not read yet, each partition's in a file of its own."""
        for partition, orders in sorted(self._consumed().items()):
            self._read[partition] = orders[-1].offset + 1
            self.orders += orders
            columns = {
                "customer": pa.array([order.customer for order in orders], pa.string()),
                **{
                    name: pa.array([order.value.get(name) for order in orders], _ARROW[kind])
                    for name, kind in self.fields.items()
                },
                "_timestamp": pa.array([order.at for order in orders], _TIME),
            }
            offsets = [order.offset for order in orders]
            land_file(pa.table(columns), self.topic, self.source, partition, offsets[0], offsets=offsets)

    def expected(self) -> Mapping[str, list[Row]]:
        """What the tables hold by now, by direct queries of all orders that were read."""
        columns: dict[str, list[object]] = {
            "customer": [order.customer for order in self.orders],
            "amount": [order.value.get("amount") for order in self.orders],
            "ordered": [order.at for order in self.orders],
            **{name: [order.value.get(name) for order in self.orders] for name in self.columns},
        }
        orders = pa.table(columns)
        queries = {
            "log": "SELECT * FROM orders ORDER BY ALL",
            "totals": "SELECT customer, count(*), sum(amount)::BIGINT FROM orders WHERE amount IS NOT NULL "
            "GROUP BY 1 ORDER BY ALL",
            "current": "SELECT * FROM (FROM orders QUALIFY max(ordered) OVER (PARTITION BY customer) = ordered) "
            "WHERE amount IS NOT NULL ORDER BY ALL",
        }
        with duckdb.connect() as connection:
            connection.register("orders", orders)
            return {table: connection.execute(query).fetchall() for table, query in queries.items()}

    def _producer(self, partitioner: str, more: Mapping[str, str] | None = None) -> Producer:
        return Producer(self._quiet({"partitioner": partitioner, **(more or {})}))

    def _quiet(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self._kafka.address, "logger": _SILENT, **settings}

    def _write(self, producer: Producer, names: Sequence[str], amount: int | None) -> None:
        for name in names:
            self._minutes += 1
            at = int((_NEW_YEAR + timedelta(minutes=self._minutes)).timestamp() * 1000)
            value = None if amount is None else self._value(amount + self._minutes % 7)
            producer.produce(self.topic, key=name, value=value, timestamp=at)
        assert producer.flush(60) == 0

    def _value(self, amount: int) -> bytes:
        """A value as a serialiser with a registry writes it."""
        fields: list[dict[str, Any]] = [{"name": "amount", "type": self.fields["amount"]}]
        fields += [{"name": name, "type": ["null", self.fields[name]], "default": None} for name in self.columns]
        schema = {"type": "record", "name": "Order", "fields": fields}
        number = self._registry.register(f"{self.topic}-value", json.dumps(schema))
        value = {"amount": amount} | {name: f"{name} {amount}" for name in self.columns}
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
        return _FRAME.pack(0, number) + data.getvalue()

    def _consumed(self) -> Mapping[int, list[Order]]:
        """What is there that the sink has not landed, by partition."""
        consumer = Consumer(
            self._quiet({"group.id": "sink", "enable.partition.eof": True, "auto.offset.reset": "earliest"})
        )
        # As Connect's: where the log begins later than where it is, it goes on from there.
        places = [TopicPartition(self.topic, number, self._read.get(number, 0)) for number in range(self.partitions)]
        consumer.assign(places)
        orders: dict[int, list[Order]] = {}
        ended = set[int]()
        while len(ended) < self.partitions:
            message: Any = consumer.poll(10)
            assert message is not None
            partition, error = message.partition(), message.error()
            if error is None:
                orders.setdefault(partition, []).append(self._order(message))
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(partition)
        consumer.close()
        return orders

    def _order(self, message: Any) -> Order:
        at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        return Order(message.offset(), message.key().decode(), at, self._decoded(message.value()))

    def _decoded(self, value: bytes | None) -> Mapping[str, Any]:
        if value is None:
            return {}
        number = _FRAME.unpack_from(value)[1]
        schema = fastavro.parse_schema(json.loads(self._registry.schemas[number - 1]))
        decoded: Any = fastavro.schemaless_reader(io.BytesIO(value[_FRAME.size :]), schema, None)
        return dict(decoded)

    def _configure(self, **config: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        with admin(self._kafka) as client:
            client.incremental_alter_configs([resource])[resource].result()
