"""Sizes: the bytes and records that each task of a plan reads, as far as they can be known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.model.graph import Graph
from partitioning.model.plan import Exchange, Plan, Stage, TaskRef
from partitioning.model.stage_inputs import Input, PlannedStream, StateInput, StreamInput
from partitioning.model.statistics import Statistics
from partitioning.model.takes import Task
from partitioning.planning.exchanges.estimates import estimates
from partitioning.planning.groups.grouping import SizedTask
from partitioning.values import Value, replace


class Sizes(Value, frozen=True):
    """Bytes and records by partition number."""

    bytes: Sequence[int]
    records: Sequence[int]


def sized(plan: Plan, graph: Graph, statistics: Statistics | None) -> Mapping[int, Sequence[SizedTask]]:
    """The tasks of each wave, in the plan's order, with what they read.

    Streams are counted. The output of a step is estimated: the same share of the batch as in the last batch, in records
    of this batch's mean size, spread evenly; nothing if the last batch did not count it. State has the size it had.
    """
    streams = {stream.name: _sizes(stream) for stream in plan.streams}
    from_steps = _FromSteps(plan, graph, statistics)
    waves: dict[int, list[SizedTask]] = {}
    for stage in plan.stages:
        inputs = {
            source.name: streams[source.step] if isinstance(source, StreamInput) else from_steps.sizes(source)
            for source in stage.inputs
        }
        for task in stage.tasks:
            waves.setdefault(stage.wave, []).append(_sized(plan, stage, task, inputs))
    return waves


def _sizes(stream: PlannedStream) -> Sizes:
    partitions = tuple(stream.partitions)
    return Sizes([partition.bytes for partition in partitions], [partition.records for partition in partitions])


def _sized(plan: Plan, stage: Stage, task: Task, inputs: Mapping[str, Sizes]) -> SizedTask:
    ref = TaskRef(stage.name, task.task)
    if task.span is not None:
        ranged = [name for name in task.reads if task.span_of(name)]
        read = [planned for name in ranged for planned in plan.stream(name).read_by(task)]
        whole = _sum(inputs, {name: numbers for name, numbers in task.reads.items() if name not in ranged})
        # No other task reads with it.
        return SizedTask(
            ref, whole.bytes + sum(part.bytes for part in read), whole.records + sum(part.records for part in read), {}
        )
    whole = _sum(inputs, task.reads)
    return SizedTask(ref, whole.bytes, whole.records, task.reads)


class _Whole(Value, frozen=True):
    """The bytes and records of whole partitions."""

    bytes: int
    records: int


def _sum(inputs: Mapping[str, Sizes], reads: Mapping[str, Sequence[int]]) -> _Whole:
    sizes = [(inputs[name], numbers) for name, numbers in reads.items()]
    return _Whole(
        sum(each.bytes[number] for each, numbers in sizes for number in numbers),
        sum(each.records[number] for each, numbers in sizes for number in numbers),
    )


class _FromSteps:
    """The sizes of what steps write, by the last batch's counts."""

    def __init__(self, plan: Plan, graph: Graph, statistics: Statistics | None) -> None:
        self._known = {
            name: estimate.records for name, estimate in estimates(graph, statistics).items() if estimate.known
        }
        before = sum(self._known.get(stream.name, 0) for stream in plan.streams)
        self._growth = plan.records / before if before else 0.0
        size = sum(partition.bytes for stream in plan.streams for partition in stream.partitions)
        self._bytes = size / plan.records if plan.records else 0.0

    def sizes(self, source: Input) -> Sizes:
        count = len(source.numbers)
        if isinstance(source, StateInput):
            records = float(source.records)
        else:
            records = self._known.get(source.step, 0) * self._growth
        return Sizes([round(records * self._bytes / count)] * count, [round(records / count)] * count)


def counted(exchanges: Sequence[Exchange], streams: Sequence[PlannedStream]) -> tuple[Exchange, ...]:
    """The exchanges, those of streams with the records that this batch moves through them.

    Where a changed partition count moves a part of a stream, the rest of it is spared. Where those move that lie by an
    older hash, nobody knows how many these are.
    """
    read = {stream.name: stream for stream in streams}
    with_counts = []
    for exchange in exchanges:
        if exchange.source in read and not exchange.of_part:
            stream = read[exchange.source]
            moves = stream.records_of(exchange.only)
            rest = exchange.spares if exchange.only is None else stream.records - moves
            exchange = replace(exchange, moves=moves, spares=rest)
        with_counts.append(exchange)
    return tuple(with_counts)
