"""Consumer groups: how far a pipeline is, told to the brokers for the tools that ask them. Nothing is read by it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from partitioning.model.offsets import StreamPartition
from partitioning.model.sources import KafkaSource
from sources.kafka import cluster as clients
from sources.kafka.cluster import Cluster


def group_of(pipeline: str) -> str:
    """The name of a pipeline's group."""
    return f"coset.{pipeline}"


def commit(source: KafkaSource, group: str, ends: Mapping[StreamPartition, int], note: str) -> None:
    """Commit the next offsets of partitions for a group that nobody joins; each says `note` beside its offset.

    To do it again changes nothing. Raises Refused if the brokers do not let who asks, and Unreachable if they do not
    answer.
    """
    cluster = Cluster(source)
    offsets = [TopicPartition(place.stream, place.partition, end, metadata=note) for place, end in sorted(ends.items())]
    request = [ConsumerGroupTopicPartitions(group, offsets)]
    where = f"group {group!r} at {source.servers}"
    try:
        answers = cluster.admin.alter_consumer_group_offsets(request, request_timeout=clients.ANSWERS_WITHIN_SECONDS)
        for answer in answers.values():
            for committed in answer.result().topic_partitions:
                if committed.error is not None:
                    raise cluster.error(committed.error, "the offset is not committed", where)
    except KafkaException as error:
        raise cluster.error(error, "the offsets are not committed", where) from None
