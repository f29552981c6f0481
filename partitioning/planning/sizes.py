"""Sizes: the bytes and records that each task of a plan reads, as far as they can be known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partitioning.model.graph import Graph
from partitioning.model.plan import STATE, STREAM, Exchange, Input, Plan, PlannedStream, TaskRef
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.estimates import estimates
from partitioning.planning.groups.grouping import SizedTask


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes and records by partition number."""

    bytes: Sequence[int]
    records: Sequence[int]


def sized(plan: Plan, graph: Graph, statistics: Statistics | None) -> Mapping[int, Sequence[SizedTask]]:
    """The tasks of each wave, in the plan's order, with what they read.

    Streams are counted. Of what steps give, a batch is taken to have the same share as the last one, in records
    of this batch's mean size, spread evenly; none where the last batch did not count it. State is what it was.
    """
    streams = {
        stream.name: Sizes(
            [each.bytes for each in stream.partitions], [each.end - each.start for each in stream.partitions]
        )
        for stream in plan.streams
    }
    given = _Given(plan, graph, statistics)
    waves: dict[int, list[SizedTask]] = {}
    for stage in plan.stages:
        inputs = {each.name: streams[each.step] if each.kind == STREAM else given.sizes(each) for each in stage.inputs}
        for task in stage.tasks:
            read = [(inputs[name], numbers) for name, numbers in task.reads.items()]
            size = sum(sizes.bytes[number] for sizes, numbers in read for number in numbers)
            records = sum(sizes.records[number] for sizes, numbers in read for number in numbers)
            waves.setdefault(stage.wave, []).append(
                SizedTask(TaskRef(stage.name, task.task), size, records, task.reads)
            )
    return waves


class _Given:
    """What steps give, by the last batch's counts."""

    def __init__(self, plan: Plan, graph: Graph, statistics: Statistics | None) -> None:
        self._known = {name: each.records for name, each in estimates(graph, statistics).items() if each.known}
        before = sum(self._known.get(stream.name, 0) for stream in plan.streams)
        self._growth = plan.records / before if before else 0.0
        size = sum(each.bytes for stream in plan.streams for each in stream.partitions)
        self._bytes = size / plan.records if plan.records else 0.0

    def sizes(self, each: Input) -> Sizes:
        count = each.placement.partitions
        records = self._known.get(each.step, 0) * (1 if each.kind == STATE else self._growth)
        return Sizes([round(records * self._bytes / count)] * count, [round(records / count)] * count)


def counted(exchanges: Sequence[Exchange], streams: Sequence[PlannedStream]) -> tuple[Exchange, ...]:
    """The exchanges, those of streams with the records that this batch moves through them.

    Where a changed partition count moves a part of a stream, the rest of it is spared.
    """
    records = {stream.name: [each.end - each.start for each in stream.partitions] for stream in streams}
    made = []
    for exchange in exchanges:
        if exchange.source in records:
            there = records[exchange.source]
            moves = sum(there) if exchange.only is None else sum(there[number] for number in exchange.only)
            rest = exchange.spares if exchange.only is None else sum(there) - moves
            exchange = replace(exchange, moves=moves, spares=rest)
        made.append(exchange)
    return tuple(made)
