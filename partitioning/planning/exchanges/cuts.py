"""Exchanges: where records must move to another placement, and where it is cheapest to move them (KAFKA-7294)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partitioning.model.graph import Graph, Step
from partitioning.model.placement import GATHERED, HashName, KeyFormat, KeyHash
from partitioning.model.reasons import AskedFor, ExchangeReason, MovesAlong, PlacedOtherwise, Unplaced
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, PlacementOrigin, derive_placements
from partitioning.planning.exchanges.estimates import Estimate, estimates, total
from partitioning.planning.exchanges.regions import Node, Solution, regions, solved
from partitioning.planning.exchanges.versions import Moved, versions
from partitioning.values import Value


class Cut(Value, frozen=True):
    """An exchange in the logical graph: the records of the stream or step `source` move to the `hash` of `key`.

    An empty `key` gathers them into one partition. `partitions` is fixed where a step asked for a number.
    `wanted_by` are the keyed steps that need it. `readers` are the steps that read the moved records; all other
    readers of `source`, tables included, read it where it was made. `moves` and `spares` count records, where
    they are known: those that pass, and those that a shuffle just before the keyed steps would have moved too.
    What several exchanges spare the same steps together is counted with the first.
    """

    source: str
    key: str
    key_format: KeyFormat
    hash: HashName
    partitions: int | None
    wanted_by: tuple[str, ...]
    why: ExchangeReason
    moves: int | None = None
    spares: int | None = None
    readers: tuple[str, ...] = ()


def cuts(graph: Graph, statistics: Statistics | None = None) -> tuple[Graph, tuple[Cut, ...]]:
    """The exchanges of a graph, at most one for each source, and the graph that reads them.

    Records that a keyed step cannot use where they lie move once on their path to it. The exchange is placed where the
    fewest records move, by the last batch's counts where they are known (see `estimates`). Ties are broken so that
    placed records stay, then by the fewest exchanges, then by the latest place.

    The returned graph has other steps only where they are needed: `<merge>.moved` brings together the inputs of a merge
    that move, and a step that another step needs unmoved stands there twice, also as `<step>.early` (see `versions`).

    The example of KAFKA-7294, where Kafka Streams moves a too:

    >>> from partitioning.authoring.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> a, b = (pipeline.stream(name, key="k", partitions=4) for name in "ab")
    >>> a.merge(b.rekey("j").rekey("k")).aggregate("count(*) AS n", name="counted").write("counts")
    >>> _, (cut,) = cuts(pipeline.graph, Statistics(0, {"a": 900, "b": 100}))
    >>> cut.source, cut.readers, cut.moves, cut.spares
    ('b.rekey.rekey', ('a.merge',), 100, 900)
    >>> cut.why.dirty, cut.wanted_by, cut.why.staying
    (('b.rekey.rekey',), ('counted',), ('a',))
    """
    placed = derive_placements(graph, statistics)
    records = estimates(graph, statistics)
    steps = {step.name: step for step in graph.steps}
    solutions = {region.target: solved(region, placed, records) for region in regions(graph, placed)}
    spares = {key_hash: solution.spared() for key_hash, solution in solutions.items()}
    rewritten, moved = versions(graph, placed, {key_hash: solution.chosen for key_hash, solution in solutions.items()})
    exchanges = []
    for exchange in moved:
        node, key_hash = exchange.move.node, exchange.move.target
        if exchange.move.asked_by is not None:
            exchanges.append(_asked(steps[exchange.move.asked_by], placed[node.name], records[node.name], exchange))
        else:
            reason = unplaced(steps, placed, solutions[key_hash], node)
            exchanges.append(_wanted(placed[node.name], solutions[key_hash], exchange, reason, spares[key_hash][node]))
    return rewritten, tuple(exchanges)


def _wanted(source: DerivedPlacement, solution: Solution, moved: Moved, reason: Unplaced, spares: int | None) -> Cut:
    node, key_hash = moved.move.node, moved.move.target
    weight = solution.weights[node]
    return Cut(
        moved.source,
        "" if key_hash == GATHERED else source.key,
        key_hash.key_format,
        key_hash.hash,
        1 if key_hash == GATHERED else None,
        solution.wanted_by[node],
        reason,
        weight.records if weight.known else None,
        spares,
        moved.readers,
    )


def _asked(step: Step, source: DerivedPlacement, weight: Estimate, moved: Moved) -> Cut:
    """The exchange that a repartition step asks for, which spares nothing."""
    return Cut(
        moved.source,
        source.key,
        source.key_format,
        step.hash,
        step.partitions,
        (step.name,),
        AskedFor(step.partitions),
        weight.records if weight.known else None,
        0 if weight.known else None,
        moved.readers,
    )


def unplaced(
    steps: Mapping[str, Step], placed: Mapping[str, DerivedPlacement], solution: Solution, node: Node
) -> Unplaced:
    """Why the exchange at a node of a solved region is there: since when its records are unplaced, and what stays or
    moves along."""
    key_hash = solution.region.target
    moving = [origin for origin in placed[node.name].origins if not origin.lies(key_hash)]
    if key_hash == GATHERED:
        moving = []
    return Unplaced(
        tuple(dict.fromkeys(origin.since for origin in moving if origin.since)),
        tuple(PlacedOtherwise(origin.name, origin.key_hash) for origin in moving if not origin.since),
        _along(placed, solution, node),
        tuple(_staying(steps, placed, solution, node)),
    )


def _along(placed: Mapping[str, DerivedPlacement], solution: Solution, node: Node) -> MovesAlong | None:
    names = solution.along.get(node)
    if not names:
        return None
    left, without = (
        solution.weights[node],
        total(solution.weights[earlier] for earlier in solution.unmixed(placed, node)),
    )
    known = left.known and without.known
    return MovesAlong(names, node.name, left.records if known else None, without.records if known else None)


def _staying(
    steps: Mapping[str, Step], placed: Mapping[str, DerivedPlacement], solution: Solution, node: Node
) -> Iterable[str]:
    inputs = [name for step in solution.wanted_by[node] for name in steps[step].inputs]
    clean = dict.fromkeys(origin.name for name in inputs for origin in _clean(placed[name], solution.region.target))
    moving = {name for names in solution.along.values() for name in names}
    return [name for name in clean if name not in moving]


def _clean(placed: DerivedPlacement, key_hash: KeyHash) -> list[PlacementOrigin]:
    return [origin for origin in placed.origins if origin.lies(key_hash)]
