"""The real system's physical plans beside ours, edge by edge: who gets which record, through which unifiers.

Each edge of a logical plan is taken for itself: M tasks upstream, N downstream. In Coset the tasks upstream
write the N partitions of an exchange, whose keys a partitioner dealt; the task downstream that owns a key reads
all M parts of its partition, after the levels of unifiers that the fan-in asks for. A parallel edge is no edge
at all: the step stays in its task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from partitioning.authoring.settings import PartitionerRef
from partitioning.model.placement import HashName, KeyFormat, Placement
from partitioning.model.unifiers import groups, levels
from partitioning.planning.partitioners.partitioners import Shares, assign_shares
from tests.apex import FILES, RESIDUES, VECTORS

NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Edge:
    """An input port of an operator in one of the real system's plans: M partitions upstream, N downstream."""

    plan: dict[str, Any]
    stream: dict[str, Any]
    sink: dict[str, Any]

    @property
    def source(self) -> str:
        return str(self.stream["source"].split(".")[0])

    @property
    def operator(self) -> str:
        return str(self.sink["to"].split(".")[0])

    @property
    def port(self) -> str:
        return str(self.sink["to"].split(".")[1])

    @property
    def upstream(self) -> int:
        return len(self.plan["partitions"][self.source])

    @property
    def downstream(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plan["partitions"][self.operator]
        return found

    @property
    def parallel(self) -> bool:
        return bool(self.sink.get("partition_parallel"))

    @property
    def keyed(self) -> bool:
        """Whether the port has keys; what has none gets everything in each of its partitions."""
        return all(self.port in each for each in self.downstream)

    @property
    def fan_in(self) -> int | None:
        """The limit as Coset would be given it: Apex takes 0 and 1 silently for none."""
        limit: int = self.stream.get("unifier_limit") or NO_LIMIT
        return limit if 1 < limit < NO_LIMIT else None

    def reached(self, partition: int, residue: int) -> list[int]:
        """The partitions downstream that the real system hands a record of this source partition, each as often."""
        found, at = [], [f"{self.source}#{partition}"]
        while at:
            here = at.pop()
            for _, start, end, port, mask, keys in self._edges():
                if start == here and (not mask or residue & mask in keys):
                    if port == "merge":
                        at.append(end)
                    elif end.startswith(f"{self.operator}#") and port == self.port:
                        found.append(int(end.split("#")[1]))
        return sorted(found)

    def unifiers(self) -> list[int]:
        """The fan-ins of all unifiers of the stream."""
        name = self.stream["name"]
        return [
            each["fan_in"]
            for each in self.plan["unifiers"]
            if each["name"].split(":")[1].split("@")[0].split("/")[0] == name
        ]

    def _edges(self) -> Iterator[list[Any]]:
        return (edge for edge in self.plan["edges"] if edge[0] == self.stream["name"])


def edges() -> Iterator[tuple[str, Edge]]:
    for file in FILES:
        for case in json.loads((VECTORS / f"{file}.json").read_text()):
            if case.get("error") is None:
                for stream in case["input"]["streams"]:
                    for sink in stream["sinks"]:
                        yield f"{case['id']} {stream['source']}-{sink['to']}", Edge(case["plan"], stream, sink)


EDGES = list(edges())


def shares(tasks: int) -> Shares:
    apex_hash = HashName("partitioning.planning.partitioners.partitioners:apex_hash")
    placement = Placement("key", KeyFormat.STRING, apex_hash, tasks)
    ref = PartitionerRef("partitioning.planning.partitioners.partitioners:ApexKeys", {"tasks": tasks})
    return assign_shares(ref, "there", cosets=tasks, inputs=(placement,), previous=None, figures={}, batch=0)


def owners(dealt: Shares, residue: int) -> list[int]:
    return [task for task, owned in enumerate(dealt.owners) if residue % dealt.cosets in owned]


def arrivals(parts: int, fan_in: int | None) -> list[int]:
    """The parts that reach the reading task through the levels of unifiers, each as often as it does."""
    held = [[part] for part in range(parts)]
    for width in levels(parts, fan_in):
        held = [[part for index in group for part in held[index]] for group in groups(len(held), width)]
        assert len(held) == width
    assert fan_in is None or len(held) <= fan_in
    return sorted(part for each in held for part in each)


def kind(edge: Edge) -> str:
    if edge.parallel:
        return "parallel"
    return "keyed" if edge.keyed else "broadcast" if len(edge.downstream) > 1 else "gathered"


def of(*kinds: str) -> Any:
    chosen = [(name, edge) for name, edge in EDGES if kind(edge) in kinds]
    return pytest.mark.parametrize("edge", [edge for _, edge in chosen], ids=[name for name, _ in chosen])


@of("keyed", "gathered")
def test_each_record_goes_to_the_task_that_apex_sends_it_to_and_once(edge: Edge) -> None:
    dealt = shares(len(edge.downstream))
    for residue in range(RESIDUES):
        for partition in range(edge.upstream):
            assert edge.reached(partition, residue) == owners(dealt, residue)
    assert arrivals(edge.upstream, edge.fan_in) == list(range(edge.upstream))


@of("parallel")
def test_a_parallel_edge_stays_in_its_task(edge: Edge) -> None:
    for residue in range(RESIDUES):
        for partition in range(edge.upstream):
            # Where a parallel partitioner returns fewer partitions, the real system loses the others' records.
            expected = [partition] if partition < len(edge.downstream) else []
            assert edge.reached(partition, residue) == expected


@of("broadcast")
def test_a_port_that_apex_broadcasts_is_keyed_like_any_other(edge: Edge) -> None:
    """The deviation: every task of the real system gets every record of a port that was not connected first."""
    tasks = list(range(len(edge.downstream)))
    for residue in range(RESIDUES):
        assert all(edge.reached(partition, residue) == tasks for partition in range(edge.upstream))
        assert len(owners(shares(len(tasks)), residue)) == 1


@of("keyed", "gathered")
def test_each_task_downstream_has_one_unifier_and_no_tree_is_busier_than_that_of_apex(edge: Edge) -> None:
    """Ours is the task itself: M inputs, or as many as the last level leaves."""
    found = edge.unifiers()
    assert bool(found) == (edge.upstream > 1)
    busiest, left = 1, edge.upstream
    for width in levels(edge.upstream, edge.fan_in):
        busiest = max(busiest, *map(len, groups(left, width)))
        left = width
    assert max(busiest, left) <= max(found, default=1)
    if edge.fan_in is not None:
        assert max(busiest, left) <= edge.fan_in


def test_every_kind_of_edge_is_there() -> None:
    assert {kind(edge) for _, edge in EDGES} == {"keyed", "gathered", "parallel", "broadcast"}
