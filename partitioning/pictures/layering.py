"""Layers: order the nodes of a graph within given layers and place them from left to right (Sugiyama et al. 1981).

A node of a layer stands near the nodes that it is linked with, in the order of their mean place; links over several
layers get a place of their own in each. So links cross each other seldom, and nodes never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from partitioning.values import Value

# Links pass between nodes and each other at this distance.
_LINK = 12
_SWEEPS = 4
_PULLS = 32


class Arranged(Value, frozen=True):
    """The middle of each node, and of each link its way: for every layer from source to target the middle there."""

    centres: tuple[float, ...]
    ways: tuple[tuple[float, ...], ...]


def arranged(widths: Sequence[int], layers: Sequence[int], links: Sequence[tuple[int, int]], *, gap: int) -> Arranged:
    """Place nodes of these widths, each in its layer, at least `gap` apart. A link goes from a higher to a lower layer.

    >>> arranged([10, 10, 30], [0, 0, 1], [(0, 2), (1, 2)], gap=20)
    Arranged(centres=(5.0, 35.0, 20.0), ways=((5.0, 20.0), (35.0, 20.0)))
    """
    graph = _Graph(list(widths), list(layers), gap)
    ways = [graph.way(source, target) for source, target in links]
    graph.order()
    graph.place()
    left = min(centre - width / 2 for centre, width in zip(graph.centres, graph.widths, strict=True))
    centres = [centre - left for centre in graph.centres]
    return Arranged(tuple(centres[: len(widths)]), tuple(tuple(centres[node] for node in way) for way in ways))


class _Graph:
    """The nodes, and for each layer that a link only passes a further one."""

    def __init__(self, widths: list[int], layers: list[int], gap: int) -> None:
        self.widths, self.layers, self.gap = widths, layers, gap
        self._boxes = len(widths)
        self.centres: list[float] = []
        self.rows: list[list[int]] = []
        self._above: list[list[int]] = [[] for _ in widths]
        self._below: list[list[int]] = [[] for _ in widths]

    def way(self, source: int, target: int) -> list[int]:
        """Link two nodes; all nodes on the way, both ends included."""
        nodes = [source]
        for layer in range(self.layers[source] + 1, self.layers[target]):
            nodes.append(len(self.widths))
            self.widths.append(_LINK)
            self.layers.append(layer)
            self._above.append([])
            self._below.append([])
        nodes.append(target)
        for above, below in pairwise(nodes):
            self._below[above].append(below)
            self._above[below].append(above)
        return nodes

    def order(self) -> None:
        """Sort each row by the mean place of the nodes above, then of those below, a few times."""
        rows = dict[int, list[int]]()
        for node, layer in enumerate(self.layers):
            rows.setdefault(layer, []).append(node)
        self.rows = [rows[layer] for layer in sorted(rows)]
        place = {node: float(number) for row in self.rows for number, node in enumerate(row)}
        for sweep in range(_SWEEPS + 1):
            linked = self._below if sweep % 2 else self._above
            for row in self.rows[::-1] if sweep % 2 else self.rows:
                means = {node: _mean([place[neighbour] for neighbour in linked[node]], place[node]) for node in row}
                row.sort(key=means.__getitem__)
                place.update({node: float(number) for number, node in enumerate(row)})

    def place(self) -> None:
        """Move each row as near to what it is linked with as its order and the gaps allow, until it rests."""
        self.centres = [0.0] * len(self.widths)
        for row in self.rows:
            self._set(row, dict.fromkeys(row, 0.0))
        links = [[*above, *below] for above, below in zip(self._above, self._below, strict=True)]
        for _ in range(_PULLS):
            for row in (*self.rows, *self.rows[::-1]):
                self._set(
                    row, {node: _mean([self.centres[neighbour] for neighbour in links[node]], 0.0) for node in row}
                )
        for row in self.rows:
            above = {node: self._above[node] or self._below[node] for node in row}
            self._set(row, {node: _mean([self.centres[neighbour] for neighbour in above[node]], 0.0) for node in row})

    def _set(self, row: Sequence[int], wanted: Mapping[int, float]) -> None:
        """The nearest places to those wanted, by least squares, that keep order and gaps (isotonic regression)."""
        offsets = [0.0]
        for left, right in pairwise(row):
            gap = self.gap if min(left, right) < self._boxes else _LINK
            offsets.append(offsets[-1] + (self.widths[left] + self.widths[right]) / 2 + gap)
        blocks = list[tuple[float, int]]()
        for node, offset in zip(row, offsets, strict=True):
            blocks.append((wanted[node] - offset, 1))
            while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
                total, count = blocks.pop()
                blocks[-1] = (blocks[-1][0] + total, blocks[-1][1] + count)
        places = [total / count for total, count in blocks for _ in range(count)]
        for node, offset, place in zip(row, offsets, places, strict=True):
            self.centres[node] = offset + place


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
