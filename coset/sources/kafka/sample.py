"""A sample of new records of a topic: their mean size, and how long the first has waited."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message, TopicPartition

from coset.sources.kafka.cluster import Cluster

# The most bytes that a broker sends of a partition at once; a larger record comes alone.
_BYTES_AT_ONCE = 1 << 16
_WITHIN_SECONDS = 5.0
_RECORDS_AT_ONCE = 1000


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
