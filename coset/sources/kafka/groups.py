"""Consumer groups: a pipeline's position, committed for tools that read it. Coset never reads it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import KafkaException, TopicPartition

from coset.sources.kafka import cluster as clients
from coset.sources.kafka.cluster import Cluster
from partitioning.model.offsets import StreamPartition
from partitioning.model.sources import KafkaSource


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
    waits = {"session.timeout.ms": str(int(clients.ANSWERS_WITHIN_SECONDS * 1000))}
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
