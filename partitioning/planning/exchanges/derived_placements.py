"""Placements: where the records of each stream and step lie, derived from the graph alone.

A stream is placed by its key; a step that gives other keys makes its records *unplaced*; a step that needs equal
keys together gives placed records; a merge may hold both (KAFKA-7294: clean and dirty).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.model.graph import Graph, Op, Step, quote
from partitioning.model.placement import GATHERED, MURMUR2, OPAQUE, KeyFormat, KeyHash, hash_findings, hash_of_bytes
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.estimates import Estimate, estimates
from partitioning.values import Value, replace


class PlacementOrigin(Value, frozen=True, order=True):
    """What records come from: a stream, or a step that placed them. `since` last changed their keys, None: none did."""

    name: str
    key_hash: KeyHash
    since: str | None = None

    def lies(self, target: KeyHash) -> bool:
        """Whether its records lie where `target` puts them."""
        return self.since is None and self.key_hash.serves(target)


class DerivedPlacement(Value, frozen=True):
    """Where the records of a stream or step lie, by each of their origins; `key` is their key column."""

    key: str
    key_format: KeyFormat
    origins: tuple[PlacementOrigin, ...]

    def lies(self, target: KeyHash) -> bool:
        """Whether all records lie where `target` puts them."""
        return all(origin.lies(target) for origin in self.origins)

    def mixed(self, target: KeyHash) -> bool:
        """Whether some records lie where `target` puts them, and others do not."""
        return len({origin.lies(target) for origin in self.origins}) > 1


def derive_placements(graph: Graph, statistics: Statistics | None = None) -> Mapping[str, DerivedPlacement]:
    """Where the records of each stream and step lie, once the exchanges that keyed steps need are there.

    >>> from partitioning.authoring.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> a, b = (pipeline.stream(name, key="k", partitions=4) for name in "ab")
    >>> _ = a.merge(b.rekey("j").rekey("k"), name="both").aggregate("count(*) AS n", name="counted")
    >>> placed = derive_placements(pipeline.graph)
    >>> [(origin.name, origin.since) for origin in placed["both"].origins]
    [('a', None), ('b', 'b.rekey.rekey')]
    >>> [(origin.name, str(origin.key_hash), origin.since) for origin in placed["counted"].origins]
    [('counted', 'murmur2 of string keys', None)]
    """
    records = estimates(graph, statistics)
    placed: dict[str, DerivedPlacement] = {}
    for stream in graph.streams:
        # Records that lie by an earlier one of several hashes move before (see `changeover`).
        origin = PlacementOrigin(stream.name, KeyHash(stream.key_format, stream.hash).settled)
        placed[stream.name] = DerivedPlacement(stream.key, stream.key_format, (origin,))
    sides, fixed, unknown = _sides(graph), _before_state(graph), estimates(graph)
    for step in graph.steps:
        inputs = [placed[name] for name in step.inputs]
        together = [placed[name] for name in sides.get(step.name, step.inputs)]
        origins = _origins(step, inputs, unknown if step.name in fixed else records, together)
        placed[step.name] = DerivedPlacement(step.key, step.key_format, origins)
    return placed


def _before_state(graph: Graph) -> set[str]:
    """The steps that keep something, and those that they come from. They lie in one way whatever a batch brings, so
    kept rows lie where they are read."""
    kept = set[str]()
    for step in reversed(graph.steps):
        if step.state or step.name in kept:
            kept.update((step.name, *step.inputs))
    return kept


def _sides(graph: Graph) -> Mapping[str, Sequence[str]]:
    """For each step that keeps a side of a join, what both sides read: they lie in one way, so that what moves is new
    records, and not what is kept."""
    recent = {step.name: step.inputs for step in graph.steps if step.op in {Op.RECENT, Op.KEEP}}
    rows = {step.name: step.inputs[0] for step in graph.steps if step.op is Op.ROWS}
    read = [[rows.get(name, name) for name in step.inputs] for step in graph.steps if step.op not in {Op.ROWS}]
    joins = [kept for kept in read if kept and recent.keys() >= set(kept)]
    return {side: [name for each in sides for name in recent[each]] for sides in joins for side in sides}


def places(step: Step) -> bool:
    """Whether a step has its inputs' records lie in a certain way, so that its own do too."""
    return step.keyed or step.op is Op.REPARTITION or gathers(step)


def gathers(step: Step) -> bool:
    """Whether a step needs all records in one task."""
    return (step.op is Op.PROCESS and step.partitions == 1) or (step.keyed and not step.key)


def target(step: Step, placed: Mapping[str, DerivedPlacement]) -> KeyHash:
    """How the inputs of a step that `places` must lie."""
    return GATHERED if gathers(step) else placed[step.name].origins[0].key_hash


def changes_keys(step: Step, placed: Mapping[str, DerivedPlacement]) -> bool:
    """Whether records may have other keys after the step than before; not if it names the key column there is."""
    before = placed[step.inputs[0]]
    same = (step.key, step.key_format) == (before.key, before.key_format) and step.expressions == (quote(step.key),)
    return step.rekeys and not (step.op is Op.REKEY and same)


def _origins(
    step: Step,
    inputs: Sequence[DerivedPlacement],
    records: Mapping[str, Estimate],
    together: Sequence[DerivedPlacement],
) -> tuple[PlacementOrigin, ...]:
    if places(step):
        return (PlacementOrigin(step.name, _way(step, together, records), step.name if step.rekeys else None),)
    origins = [origin for source in inputs for origin in source.origins]
    if changes_keys(step, dict(zip(step.inputs, inputs, strict=True))):
        origins = [replace(origin, since=step.name) for origin in origins]
    return tuple(dict.fromkeys(origins))


def _way(step: Step, inputs: Sequence[DerivedPlacement], records: Mapping[str, Estimate]) -> KeyHash:
    """How the records of a step that `places` lie.

    Where the inputs lie by different hashes, the hash with the most records wins and the other inputs move. Where all
    of them move, they move to the first known hash of their streams.
    """
    if step.op is Op.REPARTITION:
        return KeyHash(step.key_format, step.hash, gathered=step.partitions == 1)
    if gathers(step):
        return KeyHash(step.key_format, MURMUR2, gathered=True)
    origins = [origin for source in inputs for origin in source.origins]
    key_hashes = {origin.key_hash for origin in origins}
    if len(key_hashes) == 1 and all(origin.since is None for origin in origins):
        return origins[0].key_hash
    held: dict[KeyHash, int] = {}
    for origin in dict.fromkeys(origins):
        if origin.since is None and origin.key_hash.hash != OPAQUE:
            key_hash = replace(origin.key_hash, gathered=False)
            held[key_hash] = held.get(key_hash, 0) + records[origin.name].records
    if held:
        return max(held, key=lambda key_hash: held[key_hash])
    key_format = inputs[0].key_format
    # A hash of JSON is of the fields of the keys before.
    hashes = [hash_of_bytes(origin.key_hash.hash) for origin in origins if origin.key_hash.hash != OPAQUE]
    usable = [name for name in hashes if not any(hash_findings(name, key_format, step.name))]
    return KeyHash(key_format, usable[0] if usable else MURMUR2)
