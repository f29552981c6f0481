"""Placements: where the records of each stream and step lie, derived from the graph alone.

A stream is placed by its key; a step that gives other keys makes its records *unplaced*; a step that needs equal
keys together gives placed records; a merge may hold both (KAFKA-7294: clean and dirty).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partitioning.model.graph import Graph, Step, quote
from partitioning.model.placement import MURMUR2, OPAQUE, placement_findings
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.estimates import Estimate, estimates


@dataclass(frozen=True, order=True, slots=True)
class Way:
    """How a key says where its records lie: the hash of the key serialised as `key_format`.

    With `gathered` all lie in one partition, where each hash would put them too.
    """

    key_format: str
    hash: str
    gathered: bool = False

    def serves(self, target: Way) -> bool:
        """Whether records that lie so need not move to where `target` puts them.

        >>> Way("string", "murmur2").serves(Way("long", "murmur2")), Way("long", "murmur2").serves(GATHERED)
        (False, False)
        """
        if target.gathered:
            return self.gathered
        return (self.key_format, self.hash) == (target.key_format, target.hash)


GATHERED = Way("string", MURMUR2, gathered=True)


@dataclass(frozen=True, order=True, slots=True)
class Origin:
    """What records come from: a stream, or a step that placed them. `since` last changed their keys, None: none did."""

    name: str
    way: Way
    since: str | None = None

    def lies(self, target: Way) -> bool:
        """Whether its records lie where `target` puts them."""
        return self.since is None and self.way.serves(target)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the records of a stream or step lie, by each of their origins; `key` is their key column."""

    key: str
    key_format: str
    origins: tuple[Origin, ...]

    def lies(self, target: Way) -> bool:
        """Whether all records lie where `target` puts them."""
        return all(origin.lies(target) for origin in self.origins)

    def mixed(self, target: Way) -> bool:
        """Whether some records lie where `target` puts them, and others do not."""
        return len({origin.lies(target) for origin in self.origins}) > 1


def placements(graph: Graph, statistics: Statistics | None = None) -> Mapping[str, Placed]:
    """Where the records of each stream and step lie, once the exchanges that keyed steps need are there.

    >>> from partitioning.authoring.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> a, b = (pipeline.stream(name, key="k", partitions=4) for name in "ab")
    >>> _ = a.merge(b.rekey("j").rekey("k"), name="both").aggregate("count(*) AS n", name="counted")
    >>> placed = placements(pipeline.graph)
    >>> [(origin.name, origin.since) for origin in placed["both"].origins]
    [('a', None), ('b', 'b.rekey.rekey')]
    >>> placed["counted"].origins
    (Origin(name='counted', way=Way(key_format='string', hash='murmur2', gathered=False), since=None),)
    """
    records = estimates(graph, statistics)
    found: dict[str, Placed] = {}
    for stream in graph.streams:
        origin = Origin(stream.name, Way(stream.key_format, stream.placement))
        found[stream.name] = Placed(stream.key, stream.key_format, (origin,))
    for step in graph.steps:
        inputs = [found[name] for name in step.inputs]
        found[step.name] = Placed(step.key, step.key_format, _origins(step, inputs, records))
    return found


def places(step: Step) -> bool:
    """Whether a step has its inputs' records lie in a certain way, so that its own do too."""
    return step.keyed or step.op == "repartition" or gathers(step)


def gathers(step: Step) -> bool:
    """Whether a step needs all records in one task."""
    return (step.op == "process" and step.partitions == 1) or (step.keyed and not step.key)


def target(step: Step, placed: Mapping[str, Placed]) -> Way:
    """How the inputs of a step that `places` must lie."""
    return GATHERED if gathers(step) else placed[step.name].origins[0].way


def changes_keys(step: Step, placed: Mapping[str, Placed]) -> bool:
    """Whether records may have other keys after the step than before; not if it names the key column there is."""
    before = placed[step.inputs[0]]
    same = (step.key, step.key_format) == (before.key, before.key_format) and step.expressions == (quote(step.key),)
    return step.rekeys and not (step.op == "rekey" and same)


def _origins(step: Step, inputs: Sequence[Placed], records: Mapping[str, Estimate]) -> tuple[Origin, ...]:
    if places(step):
        return (Origin(step.name, _way(step, inputs, records), step.name if step.rekeys else None),)
    origins = [origin for each in inputs for origin in each.origins]
    if changes_keys(step, dict(zip(step.inputs, inputs, strict=True))):
        origins = [replace(origin, since=step.name) for origin in origins]
    return tuple(dict.fromkeys(origins))


def _way(step: Step, inputs: Sequence[Placed], records: Mapping[str, Estimate]) -> Way:
    """How the records of a step that `places` lie.

    Where inputs lie in different ways, that of most records holds and the others move. Where all of them move,
    they go by the first hash that is known of their streams.
    """
    if step.op == "repartition":
        return Way(step.key_format, step.placement, gathered=step.partitions == 1)
    if gathers(step):
        return Way(step.key_format, MURMUR2, gathered=True)
    origins = [origin for each in inputs for origin in each.origins]
    ways = {origin.way for origin in origins}
    if len(ways) == 1 and all(origin.since is None for origin in origins):
        return origins[0].way
    held: dict[Way, int] = {}
    for origin in dict.fromkeys(origins):
        if origin.since is None and origin.way.hash != OPAQUE:
            way = replace(origin.way, gathered=False)
            held[way] = held.get(way, 0) + records[origin.name].records
    if held:
        return max(held, key=lambda way: held[way])
    key_format = inputs[0].key_format
    hashes = [origin.way.hash for origin in origins if origin.way.hash != OPAQUE]
    usable = [name for name in hashes if not any(placement_findings(name, key_format, step.name))]
    return Way(key_format, usable[0] if usable else MURMUR2)
