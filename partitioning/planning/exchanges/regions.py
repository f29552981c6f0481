"""Regions: the parts of a graph whose records do not lie where keyed steps behind them need them.

Each path through a region needs one exchange. Where it stands is free, so all of a region's exchanges together are
a vertex cut of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from partitioning.model.graph import Graph, Op, Step
from partitioning.model.placement import KeyHash
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, changes_keys, places, target
from partitioning.planning.exchanges.estimates import Estimate, total
from partitioning.planning.exchanges.vertex_cut import packed, vertex_cut
from partitioning.values import Value


class Node(Value, frozen=True, order=True):
    """A place for an exchange: behind a stream or step. With `moved`, behind the unplaced inputs of a merge that also
    has placed ones; they are brought together so that one exchange serves them."""

    name: str
    moved: bool = False


class Region(Value, frozen=True):
    """The unplaced part of a graph whose records go to one target: the nodes before each node, in declared order.

    At `sources` the placement of records stops being that of `target`. The steps in `wants` need them there, each with
    the input that it reads.
    """

    target: KeyHash
    before: Mapping[Node, tuple[Node, ...]]
    sources: tuple[Node, ...]
    wants: tuple[tuple[str, Node], ...]


def regions(graph: Graph, placed: Mapping[str, DerivedPlacement]) -> tuple[Region, ...]:
    """The regions of a graph: one for each placement that records move to, in the order of these placements."""
    wants: dict[KeyHash, list[tuple[str, Node]]] = {}
    for step in graph.steps:
        if places(step) and step.op is not Op.REPARTITION:
            key_hash = target(step, placed)
            moving = dict.fromkeys(name for name in step.inputs if not placed[name].lies(key_hash))
            wants.setdefault(key_hash, []).extend((step.name, Node(name)) for name in moving)
    return tuple(
        _region(graph, placed, key_hash, tuple(readers)) for key_hash, readers in sorted(wants.items()) if readers
    )


def _region(
    graph: Graph, placed: Mapping[str, DerivedPlacement], key_hash: KeyHash, wants: tuple[tuple[str, Node], ...]
) -> Region:
    before: dict[Node, tuple[Node, ...]] = {}
    sources = [Node(stream.name) for stream in graph.streams if not placed[stream.name].lies(key_hash)]
    before.update((node, ()) for node in sources)
    parts = {node.name: node for node in sources}
    for step in graph.steps:
        node = Node(step.name)
        if placed[step.name].lies(key_hash):
            continue
        if places(step) or changes_keys(step, placed):
            sources.append(node)
            before[node], parts[step.name] = (), node
        elif step.op is Op.MERGE and placed[step.name].mixed(key_hash):
            part = _part(step, parts, before)
            before[node], parts[step.name] = (part,), part
        else:
            before[node] = tuple(Node(name) for name in dict.fromkeys(step.inputs) if name in parts)
            parts[step.name] = node
    return Region(key_hash, before, tuple(sources), wants)


def _part(merge: Step, parts: Mapping[str, Node], before: dict[Node, tuple[Node, ...]]) -> Node:
    """The unplaced inputs of a merge as one node; of a merge that it reads, only that one's."""
    # An input may come twice, directly and through another merge; then its records move twice.
    inputs = tuple(parts[name] for name in merge.inputs if name in parts)
    if len(set(inputs)) == 1:
        return inputs[0]
    node = Node(merge.name, moved=True)
    before[node] = inputs
    return node


class Solution(Value, frozen=True):
    """A region's exchanges, at the nodes `chosen`, in declared order. `weights` are the records that each node gives.

    Through which exchanges the records of a node have gone is in `through`: the last one on each path. `wanted_by`
    are the steps that want each exchange, `along` the placed origins whose records it moves with the unplaced ones.
    """

    region: Region
    weights: Mapping[Node, Estimate]
    chosen: tuple[Node, ...]
    through: Mapping[Node, frozenset[Node]]
    wanted_by: Mapping[Node, tuple[str, ...]]
    along: Mapping[Node, tuple[str, ...]]

    def spared(self) -> Mapping[Node, int | None]:
        """The records of each exchange that would have moved just before the steps that want them, and do not.

        What exchanges that serve a step together spare is counted with the first; None if it is not known.
        """
        spared: dict[Node, int | None] = {}
        for nodes, wanted in self._together():
            late, now = (total(self.weights[node] for node in moving) for moving in (wanted, nodes))
            known = late.known and now.known
            spared |= dict.fromkeys(nodes, 0 if known else None)
            spared[nodes[0]] = late.records - now.records if known else None
        return spared

    def _together(self) -> list[tuple[list[Node], list[Node]]]:
        """Exchanges that serve some step together, and the inputs that they serve."""
        groups: list[tuple[list[Node], list[Node]]] = []
        for wanted in dict.fromkeys(node for _, node in self.region.wants):
            through = self.through[wanted]
            met = [group for group in groups if through & set(group[0])]
            nodes = through.union(*(group[0] for group in met))
            inputs = [node for _, served in met for node in served]
            groups = [group for group in groups if group not in met]
            groups.append(([node for node in self.chosen if node in nodes], [*inputs, wanted]))
        return groups

    def unmixed(self, placed: Mapping[str, DerivedPlacement], node: Node) -> tuple[Node, ...]:
        """The last nodes on the way to `node` that hold nothing but unplaced records."""
        last: dict[Node, None] = {}
        waiting = [node]
        while waiting:
            end = waiting.pop()
            if _is_mixed(placed, self.region.target, end):
                waiting.extend(self.region.before[end])
            else:
                last[end] = None
        return tuple(last)


def solved(region: Region, placed: Mapping[str, DerivedPlacement], records: Mapping[str, Estimate]) -> Solution:
    """The exchanges that move the fewest records, one on each path to each step that wants them.

    Ties are broken for exchanges that move no placed records, then for the fewest, then for the latest.
    """
    weights: dict[Node, Estimate] = {}
    for node, earlier in region.before.items():
        weights[node] = total(weights[source] for source in earlier) if node.moved else records[node.name]
    cut = vertex_cut(
        region.before,
        # Records decide. Between cuts of equally many records, the number of nodes that move placed records decides.
        packed({node: (weight.records, _is_mixed(placed, region.target, node)) for node, weight in weights.items()}),
        region.sources,
        [node for _, node in region.wants],
    )
    chosen = tuple(node for node in region.before if node in cut)
    through: dict[Node, frozenset[Node]] = {}
    for node, earlier in region.before.items():
        met = frozenset[Node]().union(*(through[source] for source in earlier))
        through[node] = frozenset({node}) if node in cut else met
    wanted_by: dict[Node, dict[str, None]] = {node: {} for node in chosen}
    for step, wanted in region.wants:
        for node in through[wanted]:
            wanted_by[node][step] = None
    return Solution(
        region,
        weights,
        chosen,
        through,
        {node: tuple(steps) for node, steps in wanted_by.items()},
        {node: _along(placed[node.name], region.target) for node in chosen if not node.moved},
    )


def _is_mixed(placed: Mapping[str, DerivedPlacement], key_hash: KeyHash, node: Node) -> bool:
    return not node.moved and placed[node.name].mixed(key_hash)


def _along(placed: DerivedPlacement, key_hash: KeyHash) -> tuple[str, ...]:
    return tuple(dict.fromkeys(origin.name for origin in placed.origins if origin.lies(key_hash)))
