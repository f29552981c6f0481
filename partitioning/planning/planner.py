"""The planner: from a pipeline, what was discovered and what was published last to the next plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained
from partitioning.model.graph import Graph, gives_what_is_over
from partitioning.model.measures import ask_when
from partitioning.model.offsets import OffsetRange
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, TaskGroup, TaskMove
from partitioning.model.read_ends import NOTHING, Ends, Forgotten
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.statistics import Locality, Statistics
from partitioning.model.streams import Column, Discovered
from partitioning.model.table_parts import TablePart
from partitioning.model.task_engine import Engine
from partitioning.model.watermarks import LatestTimes, Watermark
from partitioning.planning.arrivals import arrivals
from partitioning.planning.beginnings import settled
from partitioning.planning.check import check_plan
from partitioning.planning.exchanges.cuts import cuts
from partitioning.planning.groups.grouping import Grouping, SizedTask, grouped
from partitioning.planning.returned import Earlier
from partitioning.planning.stages.draft import StageContext, StateSnapshot
from partitioning.planning.stages.record_ranges import spread
from partitioning.planning.stages.stages import cut
from partitioning.planning.taken_away import check_taken_away
from partitioning.planning.task_sizes import counted, sized
from partitioning.planning.watermarks import late_findings, watermarks, with_watermarks
from partitioning.values import replace
from partitioning.version import VERSION

# Up to this many records a batch, the audit compares every key itself and not only its hash.
KEYS_COMPARED = 50_000
# The same where the hash of some keys is unknown, so that no other check sees whether equal keys meet.
OPAQUE_KEYS_COMPARED = 1_000_000


class PriorBatches(TypedDict, total=False):
    """What a plan needs to know of earlier batches.

    `published` is the last published plan, and `kept` the state that it left. `parent` is the digest of batch - 1,
    which may have been abandoned. `shown` is the plan of that batch whose rows readers see, by default `published`: a
    backfill that left the same state may have other tables. `ends` say how far all streams were read, without what was
    `forgotten` since; by default they are those of `published`. `statistics` and `locality` are those of the last batch
    that ran. `rows` has the number of rows of each result table that the pipeline has written before, and `parts` what
    the partitions of upserted tables have. `named` is the owner of the batch: the pipeline, or a backfill. `day_end` is
    the end of the day, and `as_of` the minute, in microseconds. `engine` is what tasks are going to run in.
    """

    batch: int
    parent: str | None
    published: Plan | None
    shown: Plan | None
    ends: Ends | None
    forgotten: Sequence[Forgotten]
    settings: Settings
    statistics: Statistics | None
    locality: Locality | None
    kept: StateSnapshot | None
    rows: Mapping[str, int]
    parts: Mapping[str, tuple[TablePart, ...]]
    named: str | None
    day_end: int | None
    as_of: int | None
    earlier: Earlier
    engine: Engine | None


def plan_batch(
    pipeline: Pipeline,
    discovered: Sequence[Discovered],
    results: Mapping[str, tuple[Column, ...]],
    **basis: Unpack[PriorBatches],
) -> Plan | None:
    """The next plan, or None if no records have arrived since the last published one and nothing else is over by now.

    `results` gives the columns of each result table. Tables are always read whole, whatever limit is set.

    Raises Refused, with all findings, if what was discovered does not continue what was published, if the pipeline
    cannot be planned as the settings want it, or if the batch would take away more rows than it may.
    """
    settings, published = basis.get("settings", DEFAULTS), basis.get("published")
    limit = settings.limit
    if limit is not None and limit < 1:
        what = f"a limit of {limit} records takes nothing"
        raise Refused.of(Kind.SETTING, what, "limit", "use 1 or more, or none", limit=limit)
    ends = basis.get("ends") or _ends(published)
    streams = arrivals(pipeline.streams, discovered, ends, limit, settings.starts, settings.accept_loss)
    arrived = any(partition.end > partition.committed for stream in streams for partition in stream.partitions)
    if not arrived and not _closes_something(pipeline, streams, basis):
        return None
    plan = plan_arrived(pipeline, streams, results, **basis)
    check_taken_away(plan, published, basis.get("kept"), settings.allowance)
    held = dict(basis.get("rows") or {})
    return replace(plan, allowance=settings.allowance, held=held, offenders=settings.offenders)


def plan_arrived(
    pipeline: Pipeline,
    streams: tuple[PlannedStream, ...],
    results: Mapping[str, tuple[Column, ...]],
    *,
    batch: int = 0,
    parent: str | None = None,
    published: Plan | None = None,
    shown: Plan | None = None,
    ends: Ends | None = None,
    forgotten: Sequence[Forgotten] = (),
    settings: Settings = DEFAULTS,
    statistics: Statistics | None = None,
    locality: Locality | None = None,
    kept: StateSnapshot | None = None,
    rows: Mapping[str, int] | None = None,
    parts: Mapping[str, tuple[TablePart, ...]] | None = None,
    named: str | None = None,
    day_end: int | None = None,
    as_of: int | None = None,
    earlier: Earlier = lambda batch: None,
    engine: Engine | None = None,
) -> Plan:
    """The plan of a batch that reads just these ranges. Raises Refused as `plan_batch`."""
    ends = ends or _ends(published)
    # Without an earlier batch, the records that have arrived count.
    known = statistics or Statistics(batch, {stream.name: stream.records for stream in streams})
    name, before = named or pipeline.name, shown or published
    begin = settled(name, pipeline.graph, streams, published, settings, rows, ends, earlier, engine, shown, results)
    graph, moved = cuts(spread(pipeline, settings, known), known)
    marks = watermarks(streams, published, kept.times if kept else (), as_of)
    staged = cut(
        pipeline,
        results,
        graph=with_watermarks(graph, marks, published),
        cuts=moved,
        settings=settings,
        context=StageContext(
            batch, streams, published, ends, statistics, kept, begin.anew, named, day_end, parts or {}
        ),
    )
    plan = Plan(
        pipeline.name,
        batch,
        parent,
        VERSION,
        streams,
        counted(staged.exchanges, streams),
        staged.stages,
        (),
        key_sample=1,
        grouper=settings.grouper,
        starts=_starts(settings, ends),
        moves=(),
        losses=_losses(streams, settings),
        remembered=ends.then(Ends.by(batch, streams)).remembered(),
        forgotten=tuple(forgotten),
        anew=begin.anew,
        on=begin.on,
        day_end=day_end if goes_by_times(pipeline.graph) else None,
        as_of=as_of if marks or ask_when(pipeline.writes) else None,
        watermarks=marks,
        engine=engine,
        accepted=dict.fromkeys(begin.tables, batch) | (before.accepted if before else {}),
    )
    refuse(late_findings(plan))
    grouping = _groups(sized(plan, staged.graph, statistics), settings, published, locality)
    return check_plan(replace(plan, groups=grouping.groups, moves=grouping.moves, key_sample=_key_sample(plan)))


def _closes_something(pipeline: Pipeline, streams: tuple[PlannedStream, ...], basis: PriorBatches) -> bool:
    """Whether a batch without records has something to give, as the watermark has moved on for a step that gives what
    is over; or to note, as a partition that held it back is quiet from now on."""
    published, kept = basis.get("published"), basis.get("kept")
    if published is None or not gives_what_is_over(pipeline.steps):
        return False
    marks = watermarks(streams, published, kept.times if kept else (), basis.get("as_of"))
    steps = with_watermarks(pipeline.graph, marks, published).steps
    waiting = (step.state.watermark for step in steps if step.state and step.state.waits is not None)
    if any(passed and passed.now != passed.before for passed in waiting):
        return True
    return any(_falls_quiet(mark, published.watermark(mark.stream)) for mark in marks)


def _falls_quiet(mark: Watermark, before: Watermark | None) -> bool:
    """Whether this is the first plan without a new record in the partition that holds the watermark back. It is idle so
    long after this plan, once that is stored."""
    slowest = mark.slowest
    if before is None or slowest is None or mark.quiet[slowest] is None:
        return False
    return LatestTimes(mark.stream, before.quiet).of(slowest) is None


def goes_by_times(graph: Graph) -> bool:
    """Whether a step keeps records for a time, or a stream has a watermark."""
    timed = any(stream.time for stream in graph.streams)
    return timed or any(step.state and step.state.microseconds for step in graph.steps)


def _key_sample(plan: Plan) -> int:
    """One in how many keys is to be compared."""
    kept = sum(read.records for read in plan.states if read.placement.hash == OPAQUE)
    opaque = kept or any(stream.declared.hash == OPAQUE for stream in plan.streams)
    return max(1, -(-(plan.records + kept) // (OPAQUE_KEYS_COMPARED if opaque else KEYS_COMPARED)))


def _ends(published: Plan | None) -> Ends:
    return published.ends if published else NOTHING


def _starts(settings: Settings, ends: Ends) -> dict[str, int]:
    """The starts that were asked for, of stream partitions that no batch has read before."""
    read = {f"{read.name}-{end.partition}" for read in ends.streams for end in read.ends} if settings.starts else set()
    return {name: offset for name, offset in settings.starts.items() if name not in read}


def _losses(streams: Sequence[PlannedStream], settings: Settings) -> tuple[OffsetRange, ...]:
    """The missing offsets of the batch that were accepted as lost."""
    accepted = settings.accept_loss
    found = (gap for stream in streams for gap in stream.gaps(accepted)) if accepted else ()
    return tuple(gap.offsets for gap in found if gap.explained is Explained.ACCEPTED)


def _groups(
    tasks: Mapping[int, Sequence[SizedTask]],
    settings: Settings,
    published: Plan | None,
    locality: Locality | None,
) -> Grouping:
    """The tasks of each wave in groups of their own, numbered through all waves."""
    groups: list[TaskGroup] = []
    moves: list[TaskMove] = []
    for wave, sized_tasks in sorted(tasks.items()):
        grouping = grouped(
            sized_tasks,
            settings.grouper,
            settings.groups,
            wave=wave,
            first=len(groups),
            previous=published,
            locality=locality,
        )
        groups.extend(grouping.groups)
        moves.extend(grouping.moves)
    return Grouping(tuple(groups), tuple(moves))
