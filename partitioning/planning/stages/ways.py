"""Ways: how the records of each step of a stage lie, by how those that the stage reads do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.errors import Finding
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import Placement
from partitioning.planning.exchanges.placements import Placed, Way, changes_keys

# Records that lie anywhere have no way.
Ways = frozenset[Way | None]


def way_of(placement: Placement) -> Way | None:
    """How what a stage reads lies; None if anywhere."""
    return Way(placement.key_format, placement.hash) if placement.key else None


def keys_of(graph: Graph) -> Mapping[str, Placed]:
    """The key column of each stream and step."""
    streams = {stream.name: Placed(stream.key, stream.key_format, ()) for stream in graph.streams}
    return streams | {step.name: Placed(step.key, step.key_format, ()) for step in graph.steps}


def ways(steps: Sequence[Step], read: Mapping[str, Way | None], keys: Mapping[str, Placed]) -> Mapping[str, Ways]:
    """The ways in which the records of each relation of a stage lie: of what it reads, then of its steps."""
    found: dict[str, Ways] = {name: frozenset({way}) for name, way in read.items()}
    for step in steps:
        if changes_keys(step, keys):
            found[step.name] = frozenset({None})
        else:
            found[step.name] = frozenset[Way | None]().union(*(found[name] for name in step.inputs))
    return found


def apart(
    steps: Sequence[Step], found: Mapping[str, Ways], read: Mapping[str, Placement], where: str
) -> Iterator[Finding]:
    """What keeps equal keys from meeting in the steps that need them together."""
    met = {step.name: frozenset[Way | None]().union(*(found[n] for n in step.inputs)) for step in steps if step.keyed}
    for name, some in met.items():
        if None in some:
            yield Finding(
                f"{name} needs equal keys together, but records that it gets were given other keys and did not move",
                where,
                "move them with .repartition() first",
            )
    if any(len(some - {None}) > 1 for some in met.values()):
        yield from _different(read, where)


def _different(read: Mapping[str, Placement], where: str) -> Iterator[Finding]:
    for noun, values in (
        ("key formats", {name: placement.key_format for name, placement in read.items()}),
        ("placements", {name: placement.hash for name, placement in read.items()}),
    ):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value}" for name, value in values.items())
            yield Finding(
                f"streams that meet have different {noun} ({listed}); equal keys would not meet",
                where,
                "declare what their producers really use; a stream placed otherwise needs an exchange",
            )
