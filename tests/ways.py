"""Where the records of a graph have to lie, worked out from what steps mean: the planner is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from partitioning.model.graph import Graph, Op, Step
from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat
from partitioning.model.statistics import Statistics
from tests.exchanged import needs_all, places, rekeying


@dataclass(frozen=True)
class Way:
    """Records lie by the hash of a key of this format; or all in one partition, as that hash would put them too."""

    key_format: KeyFormat
    hash: str
    in_one: bool = False

    def serves(self, wanted: Way) -> bool:
        if wanted.in_one:
            return self.in_one
        return (self.key_format, self.hash) == (wanted.key_format, wanted.hash)


IN_ONE = Way(KeyFormat.STRING, MURMUR2, in_one=True)


def weights(graph: Graph, statistics: Statistics | None) -> dict[str, int]:
    """Records of each stream and step: what was counted, else one of a stream, and of a step what goes into it."""
    counted = statistics.records if statistics else {}
    known = {stream.name: counted.get(stream.name, 1) for stream in graph.streams}
    for step in graph.steps:
        given = [known[name] for name in step.inputs]
        known[step.name] = counted.get(step.name, sum(given) if step.op is Op.MERGE else max(given))
    return known


@dataclass
class Ways:
    """`given`: how the records of streams, and of steps that place theirs, lie. `wanted`: how a step's inputs must."""

    graph: Graph
    weights: Mapping[str, int]
    given: dict[str, Way] = field(default_factory=dict)
    wanted: dict[str, Way] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps = {step.name: step for step in self.graph.steps}
        self._changing = rekeying(self.graph)
        self.given |= {stream.name: Way(stream.key_format, stream.hash) for stream in self.graph.streams}
        for step in filter(places, self.graph.steps):
            way = self._way(step)
            self.given[step.name], self.wanted[step.name] = way, IN_ONE if needs_all(step) else way

    def lies(self, name: str, wanted: Way) -> bool:
        """Whether all records of a stream or step lie so."""
        return all(not changed and self.given[origin].serves(wanted) for origin, changed in self._origins(name))

    def _origins(self, name: str) -> list[tuple[str, bool]]:
        """Streams and placing steps that the records come from, in order, and whether their keys are others since."""
        if name in self.given:
            return [(name, name in self._changing)]
        before = [origin for read in self._steps[name].inputs for origin in self._origins(read)]
        return list(dict.fromkeys((origin, changed or name in self._changing) for origin, changed in before))

    def _way(self, step: Step) -> Way:
        if step.op is Op.REPARTITION:
            return Way(step.key_format, step.hash, in_one=step.partitions == 1)
        if needs_all(step):
            return Way(step.key_format, MURMUR2, in_one=True)
        origins = list(dict.fromkeys(origin for name in step.inputs for origin in self._origins(name)))
        all_ways = {self.given[name] for name, _ in origins}
        if len(all_ways) == 1 and not any(changed for _, changed in origins):
            return all_ways.pop()
        # Most records stay where they are; of those that lie nobody knows how, none can.
        staying: dict[Way, int] = {}
        for name, changed in origins:
            way = replace(self.given[name], in_one=False)
            if not changed and way.hash != OPAQUE:
                staying[way] = staying.get(way, 0) + self.weights[name]
        if staying:
            return max(staying, key=lambda way: staying[way])
        hashes = [self.given[name].hash for name, _ in origins]
        formats = {stream.name: stream.key_format for stream in self.graph.streams}
        formats |= {each.name: each.key_format for each in self.graph.steps}
        return Way(formats[step.inputs[0]], next((name for name in hashes if name != OPAQUE), MURMUR2))
