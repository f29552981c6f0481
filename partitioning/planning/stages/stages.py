"""Stages: cut the logical graph into parts that run without moving records, and give each its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets.assignment import assign_each, assign_owned
from partitioning.errors import Finding, Refused
from partitioning.model.graph import Graph
from partitioning.model.plan import STREAM, Exchange, Plan, PlannedWrite, Stage
from partitioning.model.statistics import Statistics
from partitioning.model.streams import OWN_TASK, Column
from partitioning.model.tasks import Task
from partitioning.planning.changeover import Change, changes, moved
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.exchanges.unifiers import levels
from partitioning.planning.stages.choices import choices
from partitioning.planning.stages.inputs import Inputs
from partitioning.planning.stages.sketches import Basis, Sketch, sketches
from partitioning.planning.stages.waves import waves


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a plan in wave order, the exchanges between them, and the graph of their steps."""

    stages: tuple[Stage, ...]
    exchanges: tuple[Exchange, ...]
    graph: Graph


def cut(
    pipeline: Pipeline,
    results: Mapping[str, tuple[Column, ...]],
    *,
    graph: Graph | None = None,
    cuts: Sequence[Cut] = (),
    settings: Settings = DEFAULTS,
    published: Plan | None = None,
    statistics: Statistics | None = None,
    batch: int = 0,
) -> Stages:
    """The stages of a pipeline, whose `graph` is cut at exchanges: see `waves` for which steps are in which.

    `results` gives each table's columns. A stage that nothing was chosen for gets `cogroup` if it has to keep
    equal keys together and `max` if not. Steps go on from what they left in the `published` plan. Where a stream
    had another partition count there, records whose place does not tell enough go through an exchange first, in
    a wave before all others.

    Raises Refused, with all findings, if a stream or step leads to no table, a scheme or partitioner does not
    fit, equal keys would not meet, or a step cannot go on from what it left.
    """
    findings = _unwritten(pipeline)
    found = waves(graph or pipeline.graph, cuts)
    graph = found.graph
    try:
        chosen = choices(pipeline, settings, found.parts)
    except Refused as refusal:
        raise Refused(*findings, *refusal.findings) from None
    basis = Basis(changes(graph.streams, published), published, statistics, batch)
    drawn = sketches(graph, found, chosen, basis, findings)
    inputs = Inputs(graph, found.moved, drawn, basis)
    own_task = {stream.name for stream in graph.streams if stream.null_keys == OWN_TASK}
    stages = _stages(graph, drawn, inputs, results, own_task, findings)
    exchanges = _exchanges(graph, found.moved, stages, inputs, settings)
    first, moves = _changeover(drawn, inputs, own_task)
    later = [replace(stage, wave=stage.wave + 1) for stage in stages] if first else stages
    return Stages((*first, *later), (*moves, *exchanges), graph)


def _stages(
    graph: Graph,
    drawn: Sequence[Sketch],
    inputs: Inputs,
    results: Mapping[str, tuple[Column, ...]],
    own_task: set[str],
    findings: list[Finding],
) -> list[Stage]:
    """The stages. Raises Refused if there are findings, these or others."""
    tables: dict[str, list[PlannedWrite]] = {}
    for write in graph.writes:
        tables.setdefault(write.step, []).append(PlannedWrite(write, results[write.table]))
    order = {write.table: place for place, write in enumerate(graph.writes)}
    stages = []
    for sketch in drawn:
        # A stream that is written as it is read is so by the first stage that reads it.
        streams = [read.step for read in sketch.part.reads if read.kind == STREAM]
        written = [
            write for name in (*streams, *(step.name for step in sketch.part.steps)) for write in tables.pop(name, ())
        ]
        try:
            stage = _stage(sketch, inputs, own_task)
        except Refused as refusal:
            findings.extend(refusal.findings)
        else:
            written.sort(key=lambda write: order[write.declared.table])
            stages.append(replace(stage, writes=tuple(written)))
    if findings:
        raise Refused(*findings)
    return stages


def _stage(sketch: Sketch, inputs: Inputs, own_task: set[str]) -> Stage:
    """A stage without its tables."""
    read = list(inputs.of(sketch))
    readings = [reading for _, reading in read]
    owners = sketch.owners
    tasks = assign_each(readings) if owners is None else assign_owned(readings, sketch.cosets, owners)
    filtered = {name for task in tasks for name in task.filters}
    placed = tuple(each for each, _ in read)
    if findings := list(inputs.misfits(sketch, placed, filtered)):
        raise Refused(*findings)
    null_keys = {
        each.name: tuple(reading.numbers) if each.kind == STREAM else (0,)
        for each, reading in read
        if (each.name in own_task if each.kind == STREAM else reading.keyed)
    }
    if own_task & null_keys.keys() and not sketch.width.gathered:
        tasks += (Task(len(tasks), null_keys, null_keys=True),)
    return Stage(
        sketch.part.name,
        placed,
        sketch.part.steps,
        (),
        str(sketch.width.scheme),
        sketch.cosets,
        _why(sketch, inputs, [each.name for each in placed if each.name in filtered]),
        tasks,
        None if sketch.choice.partitioner is None else str(sketch.choice.partitioner),
        sketch.cooling,
        sketch.part.wave,
    )


def _why(sketch: Sketch, inputs: Inputs, filtered: Sequence[str]) -> str:
    said = [sketch.width.rule]
    if sketch.choice.partitioner is not None and sketch.owners is not None:
        said.append(f"dealt to {len(sketch.owners)} tasks by {sketch.choice.partitioner}")
    if not sketch.width.gathered:
        reading = f"{' and '.join(filtered)} filtered by h(key) mod {sketch.cosets}"
        default = "default where keys must meet" if sketch.keeps else "default where none meet"
        said.append(reading if filtered else "whole partitions, no filter")
        said.append("as given" if sketch.choice.scheme else default)
    return "; ".join([*said, *inputs.changed(sketch)])


def _exchanges(
    graph: Graph, cuts: Mapping[str, Cut], stages: Sequence[Stage], inputs: Inputs, settings: Settings
) -> list[Exchange]:
    """The exchanges of the cuts, each written where its source is computed or, if it is a stream, first read."""
    steps = {step.name: step for step in graph.steps}
    homes: dict[str, Stage] = {}
    for stage in stages:
        for name in (*(step.name for step in stage.steps), *(each.step for each in stage.inputs)):
            homes.setdefault(name, stage)
    made = []
    for name, each in cuts.items():
        home = homes[each.source]
        # A combine that reads the records just as they move can be applied on the way.
        (reader, *others) = (steps[reader] for reader in each.readers)
        fan_in = settings.fan_in.get(reader.name, reader.fan_in) if reader.op == "combine" and not others else None
        unifiers = levels(len(home.tasks), fan_in)
        made.append(
            Exchange(
                name,
                each.source,
                home.name,
                inputs.placement(name),
                each.wanted_by,
                each.why,
                combine=reader.name if unifiers else None,
                unifiers=unifiers,
                moves=each.moves,
                spares=each.spares,
            )
        )
    return made


def _changeover(drawn: Sequence[Sketch], inputs: Inputs, own_task: set[str]) -> tuple[list[Stage], list[Exchange]]:
    """The stages and exchanges by which records move of streams whose partition count changed."""
    wanted: dict[str, tuple[Change, list[str]]] = {}
    for sketch in drawn:
        for read in sketch.part.reads:
            if change := inputs.moving(read, sketch):
                _, steps = wanted.setdefault(read.name, (change, []))
                steps.extend(step.name for step in sketch.part.steps if step.keyed or not sketch.keeps)
    made = [
        moved(change, inputs.moved(change), tuple(steps), own_task=change.stream in own_task)
        for change, steps in wanted.values()
    ]
    return [stage for stage, _ in made], [exchange for _, exchange in made]


def _unwritten(pipeline: Pipeline) -> list[Finding]:
    used = {write.step for write in pipeline.writes}
    for step in reversed(pipeline.steps):
        if step.name in used:
            used.update(step.inputs)
    names = [stream.name for stream in pipeline.streams] + [step.name for step in pipeline.steps]
    if not names:
        return [Finding("the pipeline has no streams", f"pipeline {pipeline.name!r}", "declare one with .stream()")]
    return [
        Finding(f"{name!r} leads to no table", f"pipeline {pipeline.name!r}", "write it with .write(), or remove it")
        for name in names
        if name not in used
    ]
