"""Stages: cut the logical graph into parts that run without moving records, and give each its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets import assign_ranges, assign_shares_of_keys, stage_tasks
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op, alive_of
from partitioning.model.leaving import unifier_levels
from partitioning.model.plan import Exchange, PlannedWrite, Stage
from partitioning.model.reasons import InRanges, OwnTasks
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import Column
from partitioning.planning.changeover import Changeover, changeovers, moved
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages.draft import NOTHING_BEFORE, StageContext, StageDraft
from partitioning.planning.stages.hot_ranges import Split, split_by_ranges
from partitioning.planning.stages.inputs import Inputs
from partitioning.planning.stages.levels import with_levels
from partitioning.planning.stages.scheme_choice import with_choices
from partitioning.planning.stages.stage_cosets import with_cosets
from partitioning.planning.stages.step_states import States, planned_write
from partitioning.planning.stages.waves import waves
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
    """The stages of a pipeline whose `graph` is cut at exchanges (see `waves`).

    `results` gives each table's columns. Without a choice, a stage gets `cogroup` if it must keep equal keys together,
    else `max`. Where a stream's partition count changed, records whose partition does not determine their task move
    through an exchange first, in a wave before all others.

    Raises Refused, with all findings, if a stream or step leads to no table, a scheme or partitioner does not fit,
    equal keys would not meet, or a step cannot continue from its state.
    """
    findings = _unwritten(pipeline)
    in_waves = waves(graph or pipeline.graph, cuts)
    graph = in_waves.graph
    try:
        chosen = with_choices(in_waves.drafts, pipeline, settings)
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
    counted = with_cosets(replace(in_waves, drafts=chosen), context, changed, settings.hot_keys, findings)
    inputs = Inputs(graph, in_waves.cuts, counted, changed, states)
    placed = [inputs.read_by(draft) for draft in counted]
    placed, ranges = _split(placed, graph, in_waves.cuts, settings, context)
    with_tasks = _with_tasks(placed, inputs, context.planned, findings)
    if findings:
        raise Refused(*findings)
    written = _with_tables(with_tasks, graph, results, context)
    stages = [draft.stage() for draft in written]
    moving = _exchanges(graph, in_waves.cuts, stages, inputs, settings)
    in_ranges = [stage for split in ranges for stage in split.stages]
    partial_rows = [exchange for split in ranges for exchange in split.exchanges]
    leveled, exchanges = with_levels([*in_ranges, *stages], [*partial_rows, *moving])
    first, moves = _changeover(graph, counted, inputs)
    later = [replace(stage, wave=stage.wave + 1) for stage in leveled] if first else leveled
    return Stages((*first, *later), (*moves, *exchanges), graph)


def _with_tasks(
    drafts: Iterable[StageDraft],
    inputs: Inputs,
    planned: Mapping[str, Sequence[PlannedPartition]],
    findings: list[Finding],
) -> list[StageDraft]:
    """The drafts with their tasks. What keeps a stage from having them goes to `findings`."""
    drafts_with_tasks = []
    for draft in drafts:
        try:
            tasks = stage_tasks(draft.inputs, draft.cosets, draft.owners, gathered=draft.count.gathered)
        except Refused as refusal:
            findings.extend(refusal.findings)
            continue
        if isinstance(why := draft.count.why, InRanges):
            tasks = assign_ranges(tasks, planned, why.records)
        if isinstance(why, OwnTasks):
            tasks = assign_shares_of_keys(tasks, why, planned)
        drafts_with_tasks.append(replace(draft, tasks=tasks))
        findings.extend(inputs.findings(drafts_with_tasks[-1]))
    return drafts_with_tasks


def _split(
    drafts: Sequence[StageDraft], graph: Graph, cuts: Mapping[str, Cut], settings: Settings, context: StageContext
) -> tuple[list[StageDraft], list[Split]]:
    """The drafts, and what reads ranges of hot keys for some of them, if that is asked for."""
    if settings.hot_keys is not HotKeys.SPLIT:
        return list(drafts), []
    moved = {cut.source for cut in cuts.values()}
    splits = [
        split_by_ranges(draft, graph, moved, context.planned, context.statistics, context.published) for draft in drafts
    ]
    left = [split.draft if split else draft for draft, split in zip(drafts, splits, strict=True)]
    return left, [split for split in splits if split]


def _with_tables(
    drafts: Iterable[StageDraft], graph: Graph, results: Mapping[str, tuple[Column, ...]], context: StageContext
) -> Iterator[StageDraft]:
    """The drafts with the tables that they write. A stream is written by the first stage that reads it."""
    tables: dict[str, list[PlannedWrite]] = {}
    for write in graph.writes:
        tables.setdefault(write.step, []).append(PlannedWrite(write, results[write.table]))
    order = {write.table: place for place, write in enumerate(graph.writes)}
    for draft in drafts:
        names = (*draft.streams, *(step.name for step in draft.steps))
        written = [write for name in names for write in tables.pop(name, ())]
        written.sort(key=lambda write: order[write.declared.table])
        yield replace(draft, writes=tuple(planned_write(write, draft, context) for write in written))


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
        # A combine that reads exactly the records that move can be applied on the way.
        (reader, *others) = (steps[reader] for reader in cut.readers)
        combines = reader.op is Op.COMBINE and not others
        unifiers = unifier_levels(
            len(home.tasks), settings.fan_in.get(reader.name, reader.fan_in) if combines else None
        )
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


def _changeover(graph: Graph, drafts: Sequence[StageDraft], inputs: Inputs) -> tuple[list[Stage], list[Exchange]]:
    """The stages and exchanges that move records of streams whose partition count changed."""
    wanted: dict[str, tuple[Changeover, list[str]]] = {}
    for draft in drafts:
        for read in draft.reads:
            if over := inputs.moving(read, draft):
                _, steps = wanted.setdefault(read.name, (over, []))
                steps.extend(step.name for step in draft.steps if step.keyed or not draft.keeps)
    streams = {stream.name: stream for stream in graph.streams}
    moves = [moved(over, streams[name], inputs.moved(over), tuple(steps)) for name, (over, steps) in wanted.items()]
    return [stage for stage, _ in moves], [exchange for _, exchange in moves]


def _unwritten(pipeline: Pipeline) -> list[Finding]:
    used = {write.step for write in pipeline.writes}
    for step in reversed(pipeline.steps):
        if step.name in used:
            used.update(step.inputs)
    used.update(alive_of(step.name) for step in pipeline.steps if step.name in used and step.state)
    names = [stream.name for stream in pipeline.streams] + [step.name for step in pipeline.steps]
    if not names:
        what, then = "the pipeline has no streams", "declare one with .stream()"
        return [Finding.of(Kind.DECLARATION, what, f"pipeline {pipeline.name!r}", then, pipeline=pipeline.name)]
    return [
        Finding.of(
            Kind.DECLARATION,
            f"{name!r} leads to no table",
            f"pipeline {pipeline.name!r}",
            "write it with .write(), or remove it",
            name=name,
        )
        for name in names
        if name not in used
    ]
