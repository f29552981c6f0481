"""Reasons: why an exchange is where it is, as a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from partitioning.model.graph import Step
from partitioning.model.placement import OPAQUE
from partitioning.planning.exchanges.estimates import Estimate, total
from partitioning.planning.exchanges.placements import GATHERED, Origin, Placed, Way
from partitioning.planning.exchanges.regions import Node, Solution


def why(
    steps: Mapping[str, Step], placed: Mapping[str, Placed], solution: Solution, node: Node, spares: int | None
) -> str:
    """Why the exchange at a node of a solved region is there: since when its records are unplaced, who wants them
    placed, what stays or moves along, and how many of how many records move, if that is known."""
    parts = [
        _cause(placed[node.name].origins, solution, node),
        *_along(placed, solution, node),
        *_staying(steps, placed, solution, node),
    ]
    return "; ".join(parts) + numbers(solution.weights[node], spares)


def numbers(weight: Estimate, spares: int | None) -> str:
    """How many records move, of those that could have; nothing if it is not known.

    >>> numbers(Estimate(100, known=True), 900), numbers(Estimate(100, known=True), 0)
    (': moves 100 of 1,000 records', ': moves 100 records')
    """
    if not weight.known:
        return ""
    if spares:
        return f": moves {weight.records:,} of {counted(weight.records + spares, 'record')}"
    return f": moves {counted(weight.records, 'record')}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "record"), counted(1000, "record")
    ('1 record', '1,000 records')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cause(origins: Iterable[Origin], solution: Solution, node: Node) -> str:
    way = solution.region.target
    wanted_by = listed(solution.wanted_by[node])
    if way == GATHERED:
        return f"gathered into one task for {wanted_by}"
    moving = [origin for origin in origins if not origin.lies(way)]
    dirty = listed(origin.since for origin in moving if origin.since)
    causes = [f"dirty since {dirty}"] if dirty else []
    causes += [_otherwise(origin, way) for origin in moving if not origin.since]
    return f"{' and '.join(causes)}, wanted by {wanted_by}"


def _otherwise(origin: Origin, way: Way) -> str:
    if origin.way.hash == OPAQUE:
        return f"{origin.name} is {OPAQUE} and others cannot be moved to it"
    return f"{origin.name} lies by {_by(origin.way)}, not by {_by(way)}"


def _by(way: Way) -> str:
    return f"{way.hash} of {way.key_format} keys"


def _along(placed: Mapping[str, Placed], solution: Solution, node: Node) -> Iterator[str]:
    if along := solution.along.get(node):
        names = listed(along)
        here, without = solution.weights[node], total(solution.weights[each] for each in solution.unmixed(placed, node))
        text = f"{names} {'moves' if len(along) == 1 else 'move'} too"
        if here.known and without.known:
            text += (
                f", as {here.records:,} are left after {node.name} and {without.records:,} would move without {names}"
            )
        yield text


def _staying(steps: Mapping[str, Step], placed: Mapping[str, Placed], solution: Solution, node: Node) -> Iterator[str]:
    inputs = [name for step in solution.wanted_by[node] for name in steps[step].inputs]
    clean = {o.name: None for name in inputs for o in placed[name].origins if o.lies(solution.region.target)}
    for along in solution.along.values():
        for name in along:
            clean.pop(name, None)
    if clean:
        yield f"{listed(clean)} {'stays where it is' if len(clean) == 1 else 'stay where they are'}"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, each once.

    >>> listed(["a", "b", "a", "c"])
    'a, b and c'
    """
    once = list(dict.fromkeys(names))
    return " and ".join([", ".join(once[:-1]), once[-1]]) if len(once) > 1 else "".join(once)
