"""Vertex cut: the cheapest vertices of a directed graph that stand on every path from its sources to its sinks.

Maximum flow by blocking flows (Dinic, 1970); each vertex is split into an edge of its weight.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


def vertex_cut(
    before: Mapping[V, Sequence[V]], weights: Mapping[V, int], sources: Collection[V], sinks: Collection[V]
) -> frozenset[V]:
    """The lightest set of vertices that lies on every path from `sources` to `sinks`, ends included.

    `before` gives the direct predecessors of each vertex. Among cuts of equal weight, the one with the fewest vertices
    is taken; among these the one nearest to the sinks, which is unique.

    >>> sorted(vertex_cut({"a": [], "b": [], "m": ["a", "b"]}, {"a": 1, "b": 1, "m": 3}, ["a", "b"], ["m"]))
    ['a', 'b']
    """
    # The number of vertices in the cut decides only between cuts of equal weight.
    prices = packed({vertex: (weight, 1) for vertex, weight in weights.items()})
    enter = {vertex: 2 * number + 2 for number, vertex in enumerate(prices)}
    unbounded = sum(prices.values()) + 1
    flow = _Flow(2 * len(prices) + 2)
    for vertex, price in prices.items():
        flow.edge(enter[vertex], enter[vertex] + 1, price)
        for earlier in before[vertex]:
            flow.edge(enter[earlier] + 1, enter[vertex], unbounded)
    for vertex in sources:
        flow.edge(_START, enter[vertex], unbounded)
    for vertex in sinks:
        flow.edge(enter[vertex] + 1, _END, unbounded)
    flow.fill()
    behind = flow.behind()
    return frozenset(vertex for vertex, side in enter.items() if side + 1 in behind and side not in behind)


def packed(ranked: Mapping[V, tuple[int, int]]) -> dict[V, int]:
    """Pairs as single weights: sums of weights compare as the sums of the pairs do. The second of each pair is 0 or 1.

    >>> packed({"a": (7, 1), "b": (3, 0)})
    {'a': 22, 'b': 9}
    """
    return {vertex: first * (len(ranked) + 1) + second for vertex, (first, second) in ranked.items()}


_START, _END = 0, 1


class _Flow:
    """The remaining capacity of each edge, from `_START` to `_END`."""

    def __init__(self, size: int) -> None:
        self._left: list[dict[int, int]] = [{} for _ in range(size)]

    def edge(self, start: int, end: int, capacity: int) -> None:
        self._left[start][end] = capacity
        self._left[end].setdefault(start, 0)

    def fill(self) -> None:
        """Send as much as can flow."""
        while _END in (levels := self._levels()):
            self._block(levels)

    def behind(self) -> set[int]:
        """The vertices from which more could flow to the end."""
        reaching, waiting = {_END}, [_END]
        while waiting:
            vertex = waiting.pop()
            for earlier in self._left[vertex]:
                if earlier not in reaching and self._left[earlier][vertex]:
                    reaching.add(earlier)
                    waiting.append(earlier)
        return reaching

    def _levels(self) -> dict[int, int]:
        """The number of edges to each vertex on a shortest path along which more can flow."""
        levels, waiting = {_START: 0}, [_START]
        for vertex in waiting:
            for neighbour, left in self._left[vertex].items():
                if left and neighbour not in levels:
                    levels[neighbour] = levels[vertex] + 1
                    waiting.append(neighbour)
        return levels

    def _block(self, levels: Mapping[int, int]) -> None:
        """Send what fits along all shortest paths."""
        ahead = {
            vertex: [neighbour for neighbour in self._left[vertex] if levels.get(neighbour) == levels[vertex] + 1]
            for vertex in levels
        }
        path = [_START]
        while ahead[_START]:
            here = path[-1]
            if here == _END:
                fits = min(self._left[start][end] for start, end in pairwise(path))
                for start, end in pairwise(path):
                    self._left[start][end] -= fits
                    self._left[end][start] += fits
                path = [_START]
            elif not ahead[here]:
                path.pop()
                ahead[path[-1]].pop()
            elif not self._left[here][ahead[here][-1]]:
                ahead[here].pop()
            else:
                path.append(ahead[here][-1])
