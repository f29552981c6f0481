"""Stages: cut the logical graph into parts that run without moving records, and give each its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets.assignment import stage_tasks
from partitioning.cosets.ranges import dealt_ranges
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op
from partitioning.model.plan import Exchange, PlannedPartition, PlannedWrite, Stage
from partitioning.model.reasons import InRanges
from partitioning.model.streams import Column
from partitioning.model.unifiers import levels
from partitioning.planning.changeover import Changeover, changeovers, moved
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages import upsert_writes
from partitioning.planning.stages.drafts import NOTHING_BEFORE, Draft, StageContext, drafts
from partitioning.planning.stages.inputs import Inputs
from partitioning.planning.stages.levels import with_levels
from partitioning.planning.stages.scheme_choice import choices
from partitioning.planning.stages.step_states import States
from partitioning.planning.stages.waves import ReadKind, waves
from partitioning.values import Value, replace


class Stages(Value, frozen=True):
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
    context: StageContext = NOTHING_BEFORE,
) -> Stages:
    """The stages of a pipeline, whose `graph` is cut at exchanges: see `waves` for which steps are in which.

    `results` gives each table's columns. A stage that nothing was chosen for gets `cogroup` if it has to keep equal
    keys together and `max` if not. Where a stream had another partition count when it was read last, records whose
    place does not tell enough go through an exchange first, in a wave before all others.

    Raises Refused, with all findings, if a stream or step leads to no table, a scheme or partitioner does not
    fit, equal keys would not meet, or a step cannot go on from what it left.
    """
    findings = _unwritten(pipeline)
    in_waves = waves(graph or pipeline.graph, cuts)
    graph = in_waves.graph
    try:
        chosen = choices(pipeline, settings, in_waves.parts)
    except Refused as refusal:
        raise Refused(*findings, *refusal.findings) from None
    states = States(
        context.published,
        context.kept,
        context.anew,
        settings.begin_anew,
        context.named or pipeline.name,
        context.day_end,
    )
    changed = changeovers(graph.streams, context.ends)
    drawn = drafts(in_waves, chosen, context, changed, findings)
    inputs = Inputs(graph, in_waves.moved, drawn, changed, states)
    stages = _stages(graph, drawn, inputs, results, context, findings)
    leveled, exchanges = with_levels(stages, _exchanges(graph, in_waves.moved, stages, inputs, settings))
    first, moves = _changeover(graph, drawn, inputs)
    later = [replace(stage, wave=stage.wave + 1) for stage in leveled] if first else leveled
    return Stages((*first, *later), (*moves, *exchanges), graph)


def _stages(
    graph: Graph,
    drawn: Sequence[Draft],
    inputs: Inputs,
    results: Mapping[str, tuple[Column, ...]],
    context: StageContext,
    findings: list[Finding],
) -> list[Stage]:
    """The stages. Raises Refused if there are findings, these or others."""
    tables: dict[str, list[PlannedWrite]] = {}
    planned = context.planned
    for write in graph.writes:
        tables.setdefault(write.step, []).append(PlannedWrite(write, results[write.table]))
    order = {write.table: place for place, write in enumerate(graph.writes)}
    stages = []
    for draft in drawn:
        # A stream that is written as it is read is so by the first stage that reads it.
        streams = [read.step for read in draft.part.reads if read.kind is ReadKind.STREAM]
        written = [
            write for name in (*streams, *(step.name for step in draft.part.steps)) for write in tables.pop(name, ())
        ]
        try:
            stage = _stage(draft, inputs, planned)
        except Refused as refusal:
            findings.extend(refusal.findings)
        else:
            written.sort(key=lambda write: order[write.declared.table])
            stages.append(
                replace(
                    stage, writes=tuple(upsert_writes.planned(write, stage, context.published) for write in written)
                )
            )
    if findings:
        raise Refused(*findings)
    return stages


def _stage(draft: Draft, inputs: Inputs, planned: Mapping[str, Sequence[PlannedPartition]]) -> Stage:
    """A stage without its tables."""
    states = [inputs.state(draft, step) for step in draft.part.steps]
    reads = (*inputs.of(draft), *(read for read, _ in states if read is not None))
    tasks = stage_tasks(reads, draft.cosets, draft.owners, gathered=draft.task_count.gathered)
    if isinstance(why := draft.task_count.why, InRanges):
        tasks = dealt_ranges(tasks, planned, why.records)
    filtered = {name for task in tasks for name in task.filters}
    if findings := list(inputs.misfits(draft, reads, filtered)):
        raise Refused(*findings)
    return Stage(
        draft.part.name,
        reads,
        tuple(step for _, step in states),
        (),
        draft.task_count.scheme,
        draft.cosets,
        draft.task_count.why,
        draft.choice.scheme is not None,
        tasks,
        None if draft.choice.partitioner is None else str(draft.choice.partitioner),
        draft.cooling,
        draft.part.wave,
        inputs.changes(draft),
    )


def _exchanges(
    graph: Graph, cuts: Mapping[str, Cut], stages: Sequence[Stage], inputs: Inputs, settings: Settings
) -> list[Exchange]:
    """The exchanges of the cuts, each written where its source is computed or, if it is a stream, first read."""
    steps = {step.name: step for step in graph.steps}
    homes: dict[str, Stage] = {}
    for stage in stages:
        for name in (*(step.name for step in stage.steps), *(read.step for read in stage.inputs)):
            homes.setdefault(name, stage)
    exchanges = []
    for name, cut in cuts.items():
        home = homes[cut.source]
        # A combine that reads the records just as they move can be applied on the way.
        (reader, *others) = (steps[reader] for reader in cut.readers)
        combines = reader.op is Op.COMBINE and not others
        unifiers = levels(len(home.tasks), settings.fan_in.get(reader.name, reader.fan_in) if combines else None)
        exchanges.append(
            Exchange(
                name,
                cut.source,
                home.name,
                inputs.placement(name),
                cut.wanted_by,
                cut.why,
                combine=reader.name if unifiers else None,
                unifiers=unifiers,
                moves=cut.moves,
                spares=cut.spares,
            )
        )
    return exchanges


def _changeover(graph: Graph, drawn: Sequence[Draft], inputs: Inputs) -> tuple[list[Stage], list[Exchange]]:
    """The stages and exchanges by which records move of streams whose partition count changed."""
    wanted: dict[str, tuple[Changeover, list[str]]] = {}
    for draft in drawn:
        for read in draft.part.reads:
            if over := inputs.moving(read, draft):
                _, steps = wanted.setdefault(read.name, (over, []))
                steps.extend(step.name for step in draft.part.steps if step.keyed or not draft.keeps)
    streams = {stream.name: stream for stream in graph.streams}
    moves = [moved(over, streams[name], inputs.moved(over), tuple(steps)) for name, (over, steps) in wanted.items()]
    return [stage for stage, _ in moves], [exchange for _, exchange in moves]


def _unwritten(pipeline: Pipeline) -> list[Finding]:
    used = {write.step for write in pipeline.writes}
    for step in reversed(pipeline.steps):
        if step.name in used:
            used.update(step.inputs)
    names = [stream.name for stream in pipeline.streams] + [step.name for step in pipeline.steps]
    if not names:
        return [
            Finding(
                Kind.DECLARATION,
                "the pipeline has no streams",
                f"pipeline {pipeline.name!r}",
                "declare one with .stream()",
                about(pipeline=pipeline.name),
            )
        ]
    return [
        Finding(
            Kind.DECLARATION,
            f"{name!r} leads to no table",
            f"pipeline {pipeline.name!r}",
            "write it with .write(), or remove it",
            about(name=name),
        )
        for name in names
        if name not in used
    ]
