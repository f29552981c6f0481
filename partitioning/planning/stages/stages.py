"""Stages: cut the logical graph into parts that run without moving records, and give each its tasks. Inputs: what the
tasks of a stage read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets import assign_ranges, assign_shares_of_keys, stage_tasks
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op, Step, alive_of
from partitioning.model.leaving import unifier_levels
from partitioning.model.placement import OPAQUE, Placement, newest_of
from partitioning.model.plan import Exchange, PlannedWrite, Stage
from partitioning.model.reasons import InRanges, OwnTasks
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedPartition, ResultInput, StateInput, StreamInput
from partitioning.model.streams import Column
from partitioning.planning.changeover import Changeover, changeovers, moved
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages.draft import (
    NOTHING_BEFORE,
    ReadKind,
    StageContext,
    StageDraft,
    StageRead,
    apart,
    keys_of,
)
from partitioning.planning.stages.hot_ranges import Split, split_by_ranges
from partitioning.planning.stages.levels import with_levels
from partitioning.planning.stages.scheme_choice import with_choices
from partitioning.planning.stages.stage_cosets import exchange_count, with_cosets
from partitioning.planning.stages.step_states import States, planned_write
from partitioning.planning.stages.waves import waves
from partitioning.values import Value, replace


class Inputs:
    """The inputs of all stages. An exchange has as many partitions as its readers want."""

    def __init__(
        self,
        graph: Graph,
        cuts: Mapping[str, Cut],
        drafts: Sequence[StageDraft],
        changed: Mapping[str, Changeover],
        states: States,
    ) -> None:
        self._streams = {stream.name: stream for stream in graph.streams}
        self._steps = {step.name: step for step in graph.steps}
        self._keys = keys_of(graph)
        self._cuts = cuts
        self._changeovers = changed
        self._states = states
        reads = [(draft, read) for draft in drafts for read in draft.reads]
        self._left = {read.step for _, read in reads if read.kind is ReadKind.RESULT}
        self._homes = {step.name: draft for draft in drafts for step in draft.steps}
        wants: dict[str, list[int]] = {}
        for draft, read in reads:
            if read.kind is ReadKind.EXCHANGE:
                wants.setdefault(read.name, []).append(draft.wants)
            elif over := self.moving(read, draft):
                wants.setdefault(over.exchange, []).append(draft.cosets)
        self._counts = {name: exchange_count(wanted) for name, wanted in wants.items()}

    def moving(self, read: StageRead, draft: StageDraft) -> Changeover | None:
        """The changeover of a stream, if a stage cannot read it before records have moved."""
        over = self._changeover(read)
        if over is None or not draft.count.keeps_keys or over.lies(draft.cosets, keeps=draft.keeps):
            return None
        return over

    def placement(self, exchange: str) -> Placement:
        """Where an exchange puts the records of its cut."""
        cut = self._cuts[exchange]
        return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or self._counts[exchange])

    def moved(self, over: Changeover) -> Placement:
        """The new placement of records that a changeover moves."""
        return replace(_settled(self._stream(over.stream)), partitions=self._counts[over.exchange])

    def read_by(self, draft: StageDraft) -> StageDraft:
        """The draft with its inputs, and its steps with where their state is left."""
        states = [self._state(draft, step) for step in draft.steps]
        changeovers = (self._changeover(read) for read in draft.reads)
        return replace(
            draft,
            inputs=(*self._of(draft), *(read for read, _ in states if read is not None)),
            steps=tuple(step for _, step in states),
            changes=tuple(change for over in changeovers if over is not None for change in over.counts),
        )

    def _of(self, draft: StageDraft) -> Iterator[Input]:
        """What a stage reads, without its own state."""
        for read in draft.reads:
            match read.kind:
                case ReadKind.STREAM:
                    yield from self._of_stream(read, draft)
                case ReadKind.EXCHANGE:
                    yield ExchangeInput(read.name, read.step, self.placement(read.name))
                case ReadKind.RESULT:
                    yield ResultInput(read.name, read.step, self._homes[read.step].left(read.step))

    def _state(self, draft: StageDraft, step: Step) -> tuple[StateInput | None, Step]:
        read = step.inputs[0]
        return self._states.of(step, self._keys[read].key, draft.key_hashes[read], draft.count.by_scheme)

    def findings(self, draft: StageDraft) -> Iterator[Finding]:
        """Findings for a draft whose tasks would not bring equal keys together, or could not read their inputs."""
        where, inputs = f"stage {draft.name}", draft.inputs
        filtered = {name for task in draft.tasks for name in task.filters}
        if not draft.count.gathered:
            placed = {read.name: read.placement for read in inputs if not isinstance(read, StateInput)}
            yield from apart(draft.steps, draft.key_hashes, placed, where)
        for step in draft.steps:
            yield from self._states.findings(step, draft.key_hashes[step.inputs[0]], draft.cosets)
        for read in inputs:
            if read.name in filtered and (why := self._cannot_filter(read)):
                yield Finding.of(
                    Kind.SCHEME,
                    f"{why}, so its records cannot be told apart by hash, "
                    f"and {draft.cosets} tasks do not divide its {read.placement.partitions} partitions",
                    where,
                    "use cogroup, or a number of tasks that divides all partition counts",
                    read=read.name,
                    cosets=draft.cosets,
                    partitions=read.placement.partitions,
                )
        if draft.choice.partitioner and any(read.placement.hash == OPAQUE for read in inputs):
            for step in draft.steps:
                if step.state or step.name in self._left:
                    yield Finding.of(
                        Kind.SCHEME,
                        f"rows of {step.name} cannot be left by residue: their placement is {OPAQUE}, "
                        f"and {draft.choice.partitioner} may assign several residues to one task",
                        where,
                        "leave the partitioner out",
                        step=step.name,
                        partitioner=draft.choice.partitioner,
                    )
        for over in filter(None, (self.moving(read, draft) for read in draft.reads)):
            if over.hash == OPAQUE:
                what = (
                    f"{over.change}, but its placement is {OPAQUE}: "
                    "its records cannot be moved to where their keys belong, "
                    f"and {draft.cosets} tasks do not divide {over.shared}, the gcd of both counts"
                )
                then = f"use cogroup, or a number of tasks that divides {over.shared}, for this batch"
                yield Finding.of(
                    Kind.SCHEME, what, where, then, change=over.change, cosets=draft.cosets, shared=over.shared
                )

    def _changeover(self, read: StageRead) -> Changeover | None:
        return self._changeovers.get(read.name) if read.kind is ReadKind.STREAM else None

    def _of_stream(self, read: StageRead, draft: StageDraft) -> Iterator[Input]:
        stream, over = self._streams[read.name], self._changeover(read)
        whole = StreamInput(read.name, self._stream(read.name), stream.partitions, stream.null_keys)
        if over is None:
            yield whole
        elif self.moving(read, draft) is None:
            yield replace(whole, placement=replace(whole.placement, partitions=over.shared))
        else:
            if over.stays:
                yield replace(whole, placement=_settled(whole.placement))
            if over.new:
                yield replace(whole, only=over.new)
            yield ExchangeInput(over.exchange, read.name, self.moved(over))

    def _stream(self, name: str) -> Placement:
        stream = self._streams[name]
        return Placement(stream.key, stream.key_format, stream.hash, stream.partitions)

    def _cannot_filter(self, read: Input) -> str | None:
        if read.placement.hash == OPAQUE:
            return f"placement of {read.name} is {OPAQUE}"
        if isinstance(read, StateInput) and not _has(self._steps[read.step], read.placement.key):
            return f"{read.name} does not hold the key {read.placement.key} of what {read.step} reads"
        return None


def _settled(placement: Placement) -> Placement:
    """Where records lie by the newest hash of the placement."""
    return replace(placement, hash=newest_of(placement.hash))


def _has(step: Step, key: str) -> bool:
    """Whether the rows of a step have that column. Only those of a process step, which are declared, may lack a key."""
    return not step.columns or any(column.name == key for column in step.columns)


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
    refuse(findings)
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
    """The drafts with their tasks. Reasons against them go to `findings`."""
    drafts_with_tasks = []
    for draft in drafts:
        with noting(findings):
            tasks = stage_tasks(draft.inputs, draft.cosets, draft.owners, gathered=draft.count.gathered)
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
