"""Discovery: what has arrived of each stream, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from coset.sources import landed
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.model.failure import together
from partitioning.model.offsets import OffsetRange
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.sources import KafkaSource, LandedSource
from partitioning.model.streams import Discovered, Stream


def discover(
    streams: Sequence[Stream], ends: Ends = NOTHING, losses: Sequence[OffsetRange] = ()
) -> tuple[Discovered, ...]:
    """What has arrived of each stream behind these `ends`, in their order.

    Raises as `landed.discover` and `kafka.discovery.discover`, with the findings of both.
    """
    in_files, in_brokers = list[Stream](), list[tuple[Stream, KafkaSource]]()
    for stream in streams:
        match stream.origin:
            case LandedSource():
                in_files.append(stream)
            case KafkaSource() as source:
                in_brokers.append((stream, source))
            case _:
                assert_never(stream.origin)
    if not in_brokers:
        return landed.discover(streams, ends, losses)
    from coset.sources.kafka import topic_discovery as kafka  # noqa: PLC0415  few pipelines read from brokers

    errors, discovered = list[CosetError](), dict[str, Discovered]()
    looks: tuple[Callable[[], tuple[Discovered, ...]], ...] = (
        lambda: landed.discover(in_files, ends, losses),
        lambda: kafka.discover(in_brokers, ends),
    )
    for look in looks:
        try:
            discovered |= {found.stream: found for found in look()}
        except (Refused, Unreachable) as error:
            errors.append(error)
    if errors:
        raise together(errors)
    return tuple(discovered[stream.name] for stream in streams)


def discover_sound(stream: Stream, ends: Ends) -> tuple[Discovered | None, frozenset[int]]:
    """What is known of a stream in which something is wrong, and its partitions of which nothing is; None if nothing is
    known of any."""
    try:
        match stream.origin:
            case LandedSource():
                return landed.discover_sound(stream, ends)
            case KafkaSource():
                (found,) = discover([stream], ends)
                return found, frozenset()
            case _:
                assert_never(stream.origin)
    except CosetError:
        return None, frozenset()
