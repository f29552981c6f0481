"""Exchanges: where records must move to another placement, and where it is cheapest to move them (KAFKA-7294)."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.graph import Graph
from partitioning.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Cut:
    """An exchange in the logical graph: the records of the stream or step `source` move to the `hash` of `key`.

    An empty `key` gathers them into one partition. `partitions` is fixed where a step asked for a number.
    `wanted_by` are the keyed steps that need it. `moves` and `spares` count records, where they are known.
    """

    source: str
    key: str
    key_format: str
    hash: str
    partitions: int | None
    wanted_by: tuple[str, ...]
    why: str
    moves: int | None = None
    spares: int | None = None


def cuts(graph: Graph, statistics: Statistics | None = None) -> tuple[Graph, tuple[Cut, ...]]:
    """The exchanges of a graph, and the graph with merges regrouped so that one exchange serves all moved inputs."""
    return graph, ()
