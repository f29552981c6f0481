"""Discovery: what has arrived of each stream, wherever it lies, and where it begins now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from coset.sources import landed
from coset.sources.known import KnownStream
from coset.sources.new_files import NewFiles
from partitioning.commands import Forget
from partitioning.errors import CosetError, Finding, Refused, Unreachable, refuse
from partitioning.kinds import Kind
from partitioning.model.failure import together
from partitioning.model.offsets import OffsetRange
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Discovered, Stream


def discover(
    streams: Sequence[Stream], ends: Ends = NOTHING, losses: Sequence[OffsetRange] = ()
) -> tuple[Discovered, ...]:
    """What has arrived of each stream behind these `ends`, in their order.

    Raises as `landed.discover` and `kafka.discovery.discover`, and those of Iceberg tables, with the findings of all.
    """
    refuse([found for stream in streams for found in _counted_otherwise(stream, ends)])
    errors, discovered = list[CosetError](), dict[str, Discovered]()
    for look in _looks(streams, ends, losses):
        try:
            discovered |= {found.stream: found for found in look()}
        except (Refused, Unreachable) as error:
            errors.append(error)
    if errors:
        raise together(errors)
    return tuple(discovered[stream.name] for stream in streams)


def _looks(
    streams: Sequence[Stream], ends: Ends, losses: Sequence[OffsetRange]
) -> Iterator[Callable[[], Sequence[Discovered]]]:
    """What finds the streams of each source."""
    in_files, in_brokers = list[Stream](), list[tuple[Stream, KafkaSource]]()
    for stream in streams:
        match stream.origin:
            case LandedSource():
                in_files.append(stream)
            case KafkaSource() as source:
                in_brokers.append((stream, source))
            case IcebergSource() as source:
                yield partial(_table, stream, source, ends)
    if in_files:
        yield partial(landed.discover, in_files, ends, losses)
    if in_brokers:
        from coset.sources.kafka import topic_discovery as kafka  # noqa: PLC0415  few pipelines read from brokers

        yield partial(kafka.discover, in_brokers, ends)


def _counted_otherwise(stream: Stream, ends: Ends) -> Iterator[Finding]:
    """A finding for a stream that was read from an Iceberg table before and is no more, or the other way round."""
    before = ends.stream(stream.name)
    if before and isinstance(before.declared.origin, IcebergSource) is not isinstance(stream.origin, IcebergSource):
        what = f"{stream.name}: it was read from {before.declared.source} before, which counts its records otherwise"
        then = (
            "declare that source; give the stream another name, or begin anew with it: ",
            Forget(ends.pipeline, stream.name),
        )
        yield Finding.of(Kind.STREAM_RESET, what, stream.source, then, stream=stream.name)


def _table(stream: Stream, source: IcebergSource, ends: Ends) -> tuple[Discovered]:
    from coset.sources.iceberg.table_discovery import discover as in_catalogue  # noqa: PLC0415  an extra

    return (in_catalogue(stream, source, ends),)


def as_of_now(stream: PlannedStream) -> PlannedStream:
    """A stream as a batch planned it; an Iceberg table with the columns that it has now. Raises as `columns_now`."""
    if not isinstance(stream.declared.origin, IcebergSource):
        return stream
    from coset.sources.iceberg.table_discovery import columns_now  # noqa: PLC0415  an extra

    return columns_now(stream, stream.declared.origin)


def discover_sound(stream: Stream, ends: Ends) -> tuple[Discovered | None, frozenset[int]]:
    """What is known of a stream in which something is wrong, and its partitions of which nothing is; None if nothing is
    known of any."""
    try:
        match stream.origin:
            case LandedSource():
                return landed.discover_sound(stream, ends)
            case KafkaSource() | IcebergSource():
                (found,) = discover([stream], ends)
                return found, frozenset()
    except CosetError:
        return None, frozenset()


def earlier_starts(stream: Stream, beginnings: Mapping[int, int]) -> Mapping[int, int]:
    """The partitions that begin before these offsets, and where. Raises Refused or Unreachable as discovery does."""
    match stream.origin:
        case LandedSource():
            found = _by_files(stream, beginnings)
        case KafkaSource() as source:
            found = _by_log(stream, source)
        case IcebergSource():
            # Rows are counted from 0 on.
            return {}
    return {number: first for number, first in found.items() if first < beginnings.get(number, first)}


def _by_files(stream: Stream, beginnings: Mapping[int, int]) -> Mapping[int, int]:
    named = NewFiles(stream, KnownStream()).find()
    if all(file.start >= beginnings.get(file.partition, file.start) for file in named):
        return {}
    # The offset in the name does not count if the file is empty.
    (found,) = landed.discover([stream])
    return {partition.partition: partition.beginning for partition in found.partitions if partition.files}


def _by_log(stream: Stream, source: KafkaSource) -> Mapping[int, int]:
    from coset.sources.kafka.cluster import Cluster, logs  # noqa: PLC0415  few pipelines read from brokers

    found = logs(Cluster(source), stream.name, range(stream.partitions))
    return {number: log.start for number, log in found.items()}
