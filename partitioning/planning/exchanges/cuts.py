"""Exchanges: where records must move to another placement, and where it is cheapest to move them (KAFKA-7294)."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.model.graph import Graph, Step
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.estimates import Estimate, estimates
from partitioning.planning.exchanges.placements import GATHERED, Placed, placements
from partitioning.planning.exchanges.reasons import counted, numbers, why
from partitioning.planning.exchanges.regions import Solution, regions, solved
from partitioning.planning.exchanges.versions import Moved, versions


@dataclass(frozen=True, slots=True)
class Cut:
    """An exchange in the logical graph: the records of the stream or step `source` move to the `hash` of `key`.

    An empty `key` gathers them into one partition. `partitions` is fixed where a step asked for a number.
    `wanted_by` are the keyed steps that need it. `readers` are the steps that read the moved records; all other
    readers of `source`, tables included, read it where it was made. `moves` and `spares` count records, where
    they are known: those that pass, and those that a shuffle just before the keyed steps would have moved too.
    What several exchanges spare the same steps together is counted with the first.
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
    readers: tuple[str, ...] = ()


def cuts(graph: Graph, statistics: Statistics | None = None) -> tuple[Graph, tuple[Cut, ...]]:
    """The exchanges of a graph, at most one for each source, and the graph that reads them.

    Where records come to lie so that a keyed step behind cannot use them, they move once on their path to it. The
    place is chosen so that the fewest records move, by the last batch's counts as far as they are known (see
    `estimates`), then so that placed records stay, then with the fewest exchanges, then as late as can be.

    The graph that is given back has other steps only where they are needed: the inputs of a merge that move are
    brought together in `<merge>.moved`, and a step that something else wants unmoved is there twice, also as
    `<step>.early` (see `versions`).

    The example of KAFKA-7294, where Kafka Streams moves a too:

    >>> from partitioning.authoring.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> a, b = (pipeline.stream(name, key="k", partitions=4) for name in "ab")
    >>> a.merge(b.rekey("j").rekey("k")).aggregate("count(*) AS n", name="counted").write("counts")
    >>> _, (cut,) = cuts(pipeline.graph, Statistics(0, {"a": 900, "b": 100}))
    >>> cut.source, cut.readers, cut.moves, cut.spares
    ('b.rekey.rekey', ('a.merge',), 100, 900)
    >>> print(cut.why)
    dirty since b.rekey.rekey, wanted by counted; a stays where it is: moves 100 of 1,000 records
    """
    placed = placements(graph, statistics)
    records = estimates(graph, statistics)
    steps = {step.name: step for step in graph.steps}
    solutions = {region.target: solved(region, placed, records) for region in regions(graph, placed)}
    spares = {way: solution.spared() for way, solution in solutions.items()}
    made, moved = versions(graph, placed, {way: solution.chosen for way, solution in solutions.items()})
    found = []
    for each in moved:
        node, way = each.move.node, each.move.target
        if each.move.asked_by is not None:
            found.append(_asked(steps[each.move.asked_by], placed[node.name], records[node.name], each))
        else:
            reason = why(steps, placed, solutions[way], node, spares[way][node])
            found.append(_wanted(placed[node.name], solutions[way], each, reason, spares[way][node]))
    return made, tuple(found)


def _wanted(source: Placed, solution: Solution, moved: Moved, reason: str, spares: int | None) -> Cut:
    node, way = moved.move.node, moved.move.target
    weight = solution.weights[node]
    return Cut(
        moved.source,
        "" if way == GATHERED else source.key,
        way.key_format,
        way.hash,
        1 if way == GATHERED else None,
        solution.wanted_by[node],
        reason,
        weight.records if weight.known else None,
        spares,
        moved.readers,
    )


def _asked(step: Step, source: Placed, weight: Estimate, moved: Moved) -> Cut:
    """The exchange that a repartition step asks for, which spares nothing."""
    into = "" if step.partitions is None else f", into {counted(step.partitions, 'partition')}"
    return Cut(
        moved.source,
        source.key,
        source.key_format,
        step.placement,
        step.partitions,
        (step.name,),
        f"{step.name} asks for it{into}{numbers(weight, 0)}",
        weight.records if weight.known else None,
        0 if weight.known else None,
        moved.readers,
    )
