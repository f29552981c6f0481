"""Sketches: the cosets of each stage, in wave order, since a stage may go by those of the stages before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from partitioning.errors import Finding, Refused
from partitioning.model.graph import Graph
from partitioning.model.placement import MURMUR2, Placement
from partitioning.model.plan import EXCHANGE, RESULT, STREAM, Plan
from partitioning.model.schemes import COGROUP, MAX, Scheme
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.planning.changeover import Change
from partitioning.planning.exchanges.placements import gathers
from partitioning.planning.partitioners.partitioners import Shares, dealt
from partitioning.planning.stages.choices import Choice
from partitioning.planning.stages.waves import Part, Read, Waves
from partitioning.planning.stages.ways import Ways, keys_of, way_of, ways
from partitioning.planning.stages.widths import Width, width

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sketch:
    """A part with its cosets and the residues that its tasks own, None if each partition has a task.

    `keeps` says whether equal keys have to be kept together, `ways` how the records of what it reads and of its
    steps lie. `wants` is how many partitions it wants of an exchange.
    """

    part: Part
    choice: Choice
    width: Width
    owners: tuple[tuple[int, ...], ...] | None
    cooling: tuple[int, ...]
    keeps: bool
    ways: Mapping[str, Ways]
    wants: int

    @property
    def cosets(self) -> int:
        return self.width.cosets

    def left(self, step: str) -> Placement:
        """How what a step leaves lies: partition r holds the rows of coset r."""
        key, key_format = next((each.key, each.key_format) for each in self.part.steps if each.name == step)
        if self.width.gathered:
            return Placement(key, key_format, MURMUR2, 1)
        (way, *others) = self.ways[step]
        if way is None or others or (self.width.scheme == MAX and len(self.part.reads) > 1):
            return Placement("", key_format, MURMUR2, self.cosets)
        return Placement(key, way.key_format, way.hash, self.cosets)


@dataclass(frozen=True, slots=True)
class Basis:
    """What plans are made from, beside the pipeline: changed counts, and the last published plan with its figures."""

    changes: Mapping[str, Change]
    published: Plan | None
    statistics: Statistics | None
    batch: int


def sketches(
    graph: Graph, found: Waves, chosen: Sequence[Choice], basis: Basis, findings: list[Finding]
) -> tuple[Sketch, ...]:
    """A sketch of each part. What is refused goes to `findings`, and the part then has one coset."""
    sketcher = _Sketcher(graph, found, basis, findings)
    return tuple(sketcher.sketch(part, choice) for part, choice in zip(found.parts, chosen, strict=True))


class _Sketcher:
    def __init__(self, graph: Graph, found: Waves, basis: Basis, findings: list[Finding]) -> None:
        self._keys = keys_of(graph)
        self._streams = {stream.name: stream for stream in graph.streams}
        self._moved = found.moved
        self._basis = basis
        self._findings = findings
        self._homes: dict[str, Sketch] = {}
        self._leaving = {read.step for part in found.parts for read in part.reads if read.kind == RESULT}
        self._before = {stage.name: stage for stage in basis.published.stages} if basis.published else {}
        self._figures: dict[str, dict[int, TaskFigures]] = {}
        for task, figures in (basis.statistics.tasks if basis.statistics else {}).items():
            self._figures.setdefault(task.stage, {})[task.task] = figures

    def sketch(self, part: Part, choice: Choice) -> Sketch:
        keeps = any(step.keyed or step.name in self._leaving for step in part.steps)
        lying = {read: self._lying(read) for read in part.reads}
        feeding = [self._homes[read.step].cosets for read in part.reads if read.kind != STREAM]
        scheme = choice.scheme or (COGROUP if keeps or choice.partitioner else MAX)
        refused = Width(scheme, 1, "", gathered=any(gathers(step) for step in part.steps))
        made = self._taken(self._width, part, choice, scheme, lying, feeding) or refused
        wants = max(feeding, default=1) if made.scheme == MAX else made.cosets
        shares = self._taken(self._dealt, part, choice, made, lying) if choice.partitioner else None
        if shares is not None:
            made, wants = replace(made, cosets=shares.cosets), shares.cosets
        rule = None if made.scheme == MAX else tuple((residue,) for residue in range(made.cosets))
        read = {read.step: way_of(placement) for read, placement in lying.items()}
        sketch = Sketch(
            part,
            choice,
            made,
            shares.owners if shares else rule,
            shares.cooling if shares else (),
            keeps,
            ways(part.steps, read, self._keys),
            wants,
        )
        for name in (*(step.name for step in part.steps), *(each.step for each in part.reads if each.kind == STREAM)):
            self._homes.setdefault(name, sketch)
        return sketch

    def _lying(self, read: Read) -> Placement:
        """Where what a part reads lies; an exchange without a count of its own lies in 0 partitions for now."""
        if read.kind == RESULT:
            return self._homes[read.step].left(read.step)
        if read.kind == EXCHANGE:
            cut = self._moved[read.name]
            return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or 0)
        stream = self._streams[read.step]
        return Placement(stream.key, stream.key_format, stream.placement, stream.partitions)

    def _width(
        self, part: Part, choice: Choice, scheme: Scheme, lying: Mapping[Read, Placement], feeding: Sequence[int]
    ) -> Width:
        if scheme == MAX:
            counts = [each.partitions or None for each in lying.values()]
        else:
            counts = [self._count(read, each) for read, each in lying.items() if each.key]
        made = width(part, scheme, counts, feeding, named=choice.named)
        together = ", ".join(step.name for step in part.steps if step.keyed)
        if made.scheme == MAX and (together or choice.partitioner):
            what = f"but {together} needs them together" if together else "so a partitioner has none to deal"
            raise Refused(
                Finding(
                    f"scheme max keeps no keys together, {what}",
                    f"stage {part.name}",
                    "use cogroup, elastic(F) or tasks(L)",
                )
            )
        return made

    def _count(self, read: Read, lying: Placement) -> int | None:
        """The partition count that a part goes by."""
        change = self._basis.changes.get(read.step) if read.kind == STREAM else None
        return change.count if change else lying.partitions or None

    def _dealt(self, part: Part, choice: Choice, made: Width, lying: Mapping[Read, Placement]) -> Shares:
        if made.gathered:
            what = f"its records are all needed together, so {choice.partitioner} has nothing to deal"
            raise Refused(Finding(what, f"stage {part.name}", "leave the partitioner out"))
        assert choice.partitioner is not None
        return dealt(
            choice.partitioner,
            part.name,
            cosets=made.cosets,
            inputs=tuple(replace(each, partitions=each.partitions or made.cosets) for each in lying.values()),
            previous=self._before.get(part.name),
            figures=self._figures.get(part.name, {}),
            batch=self._basis.batch,
        )

    def _taken(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        """What is made; None, and the findings kept, if that is refused."""
        try:
            return make(*arguments, **named)
        except Refused as refusal:
            self._findings.extend(refusal.findings)
            return None
