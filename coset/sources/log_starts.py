"""Log start offsets: where streams begin now, read without regard to the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from coset.sources.known import KnownStream
from coset.sources.landed import discover
from coset.sources.new_files import NewFiles
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.streams import Stream


def earlier(stream: Stream, beginnings: Mapping[int, int]) -> Mapping[int, int]:
    """The partitions that begin before these offsets, and where. Raises Refused or Unreachable as discovery does."""
    match stream.origin:
        case LandedSource():
            found = _by_files(stream, beginnings)
        case KafkaSource() as source:
            found = _by_log(stream, source)
        case IcebergSource():
            # Rows are counted from 0 on.
            return {}
        case _:
            assert_never(stream.origin)
    return {number: first for number, first in found.items() if first < beginnings.get(number, first)}


def _by_files(stream: Stream, beginnings: Mapping[int, int]) -> Mapping[int, int]:
    named = NewFiles(stream, KnownStream()).find()
    if all(file.start >= beginnings.get(file.partition, file.start) for file in named):
        return {}
    # The offset in the name does not count if the file is empty.
    (found,) = discover([stream])
    return {partition.partition: partition.beginning for partition in found.partitions if partition.files}


def _by_log(stream: Stream, source: KafkaSource) -> Mapping[int, int]:
    from coset.sources.kafka.cluster import Cluster  # noqa: PLC0415  few pipelines read from brokers
    from coset.sources.kafka.topics import logs  # noqa: PLC0415

    found = logs(Cluster(source), stream.name, range(stream.partitions))
    return {number: log.start for number, log in found.items()}
