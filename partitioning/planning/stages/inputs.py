"""Inputs: what each stage reads and where that lies, once the cosets of all stages are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from partitioning.cosets.assignment import Reading
from partitioning.errors import Finding
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import OPAQUE, Placement
from partitioning.model.plan import EXCHANGE, RESULT, STATE, STREAM, Input
from partitioning.model.schemes import MAX
from partitioning.planning.changeover import Change
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages.sketches import Basis, Sketch
from partitioning.planning.stages.states import States
from partitioning.planning.stages.waves import Read
from partitioning.planning.stages.ways import apart, keys_of
from partitioning.planning.stages.widths import exchange_count


class Inputs:
    """The inputs of all stages. Exchanges have as many partitions as the stages that read them want."""

    def __init__(self, graph: Graph, cuts: Mapping[str, Cut], drawn: Sequence[Sketch], basis: Basis) -> None:
        self._streams = {stream.name: stream for stream in graph.streams}
        self._steps = {step.name: step for step in graph.steps}
        self._keys = keys_of(graph)
        self._cuts = cuts
        self._changes = basis.changes
        self._states = States(basis.published)
        self._left = {read.step for sketch in drawn for read in sketch.part.reads if read.kind == RESULT}
        self._homes = {step.name: sketch for sketch in drawn for step in sketch.part.steps}
        wants: dict[str, list[int]] = {}
        for sketch in drawn:
            for read in sketch.part.reads:
                if read.kind == EXCHANGE:
                    wants.setdefault(read.name, []).append(sketch.wants)
                elif change := self.moving(read, sketch):
                    wants.setdefault(change.exchange, []).append(sketch.cosets)
        self._counts = {name: exchange_count(some) for name, some in wants.items()}

    def moving(self, read: Read, sketch: Sketch) -> Change | None:
        """The change of a stream's partition count, if a stage cannot read it before records have moved."""
        change = self._changes.get(read.name) if read.kind == STREAM else None
        if change is None or sketch.width.scheme == MAX or change.lies(sketch.cosets, keeps=sketch.keeps):
            return None
        return change

    def placement(self, exchange: str) -> Placement:
        """Where an exchange puts the records of its cut."""
        cut = self._cuts[exchange]
        return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or self._counts[exchange])

    def moved(self, change: Change) -> Placement:
        """Where the records go that a change of partition count moves."""
        return replace(self._stream(change.stream), partitions=self._counts[change.exchange])

    def of(self, sketch: Sketch) -> Iterator[tuple[Input, Reading]]:
        """What a stage reads, each as the plan has it and as it is dealt to tasks."""
        for read in sketch.part.reads:
            if read.kind == STREAM:
                yield from self._of_stream(read, sketch)
            elif read.kind == EXCHANGE:
                yield _whole(Input(read.name, EXCHANGE, read.step, self.placement(read.name)))
            else:
                yield _whole(Input(read.name, RESULT, read.step, self._homes[read.step].left(read.step)))
        for step in sketch.part.steps:
            state = self._states.input(step, self._keys[step.inputs[0]].key, sketch.ways[step.inputs[0]])
            if state is not None:
                yield _whole(state)

    def changed(self, sketch: Sketch) -> Iterator[str]:
        """What the stage does about changed partition counts, in a sentence for each stream."""
        for read in sketch.part.reads:
            change = self._changes.get(read.name) if read.kind == STREAM else None
            if change and self.moving(read, sketch):
                yield f"{change}, so {change.listed} move once, by {change.exchange}"
            elif change:
                yield f"{change}, which is read as {change.shared}, so nothing moves"

    def misfits(self, sketch: Sketch, read: Sequence[Input], filtered: Collection[str]) -> Iterator[Finding]:
        """What keeps equal keys from meeting, or inputs from being read as the tasks would have to: `filtered`."""
        where = f"stage {sketch.part.name}"
        if not sketch.width.gathered:
            placed = {each.name: each.placement for each in read if each.kind != STATE}
            yield from apart(sketch.part.steps, sketch.ways, placed, where)
        for step in sketch.part.steps:
            yield from self._states.misfits(step, sketch.ways[step.inputs[0]], sketch.cosets)
        for each in read:
            if each.name in filtered and (why := self._cannot_filter(each)):
                yield Finding(
                    f"{why}, so its records cannot be told apart by hash, "
                    f"and {sketch.cosets} tasks do not divide its {each.placement.partitions} partitions",
                    where,
                    "use cogroup, or a number of tasks that divides all partition counts",
                )
        if sketch.choice.partitioner and any(each.placement.hash == OPAQUE for each in read):
            for step in sketch.part.steps:
                if step.state or step.name in self._left:
                    yield Finding(
                        f"rows of {step.name} cannot be left by residue: their placement is {OPAQUE}, "
                        f"and {sketch.choice.partitioner} may deal several residues to one task",
                        where,
                        "leave the partitioner out",
                    )
        for change in filter(None, (self.moving(each, sketch) for each in sketch.part.reads)):
            if change.hash == OPAQUE:
                yield Finding(
                    f"{change}, but its placement is {OPAQUE}: its records cannot be moved to where their keys belong, "
                    f"and {sketch.cosets} tasks do not divide {change.shared}, the gcd of both counts",
                    where,
                    f"use cogroup, or a number of tasks that divides {change.shared}, for this batch",
                )

    def _of_stream(self, read: Read, sketch: Sketch) -> Iterator[tuple[Input, Reading]]:
        placement, change = self._stream(read.name), self._changes.get(read.name)
        if change is None:
            yield _whole(Input(read.name, STREAM, read.name, placement))
        elif self.moving(read, sketch) is None:
            lying = Input(read.name, STREAM, read.name, replace(placement, partitions=change.shared))
            yield lying, Reading(read.name, change.now)
        else:
            if change.new:
                yield _whole(Input(read.name, STREAM, read.name, placement, change.new))
            yield _whole(Input(change.exchange, EXCHANGE, read.name, self.moved(change)))

    def _stream(self, name: str) -> Placement:
        stream = self._streams[name]
        return Placement(stream.key, stream.key_format, stream.placement, stream.partitions)

    def _cannot_filter(self, each: Input) -> str | None:
        if each.placement.hash == OPAQUE:
            return f"placement of {each.name} is {OPAQUE}"
        if each.kind == STATE and not _has(self._steps[each.step], each.placement.key):
            return f"{each.name} does not hold the key {each.placement.key} of what {each.step} reads"
        return None


def _has(step: Step, key: str) -> bool:
    """Whether the rows of a step have that column. Only those of a process step, which are declared, may lack a key."""
    return not step.columns or any(column.name == key for column in step.columns)


def _whole(each: Input) -> tuple[Input, Reading]:
    return each, Reading(each.name, each.placement.partitions, keyed=bool(each.placement.key), only=each.only)
