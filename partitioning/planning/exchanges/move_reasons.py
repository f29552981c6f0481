"""Reasons: why an exchange is where it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partitioning.model.graph import Step
from partitioning.model.placement import GATHERED, KeyHash
from partitioning.model.reasons import MovesAlong, PlacedOtherwise, Unplaced
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, PlacementOrigin
from partitioning.planning.exchanges.estimates import total
from partitioning.planning.exchanges.regions import Node, Solution


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
