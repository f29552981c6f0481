"""Record ranges: the scheme `records(N)`, whose tasks each read a range of a stream partition's offsets.

This module decides whether a stage may use the scheme, how many tasks that gives, what must then move, and whether the
ranges of a plan are right. `cosets.assign_ranges` splits offsets; stored plans are read by it too.

Split joins: hot keys that several tasks share, each with a range of one stream and a copy of the other sides. A row
of a join is made of one record of each side. If each task has all records of the other sides, it makes the rows of
its range, and no other task makes them too. That is so for inner joins, and for left joins with the stream in ranges
on their left. Of a full join each task would give what finds no partner in its range alone. Steps that need all
records of a key together may only be where each task has all of them: on the sides that are copied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from msgspec import UNSET

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.cosets import MOST_RANGES, how_many
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Join, Op, Step
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import OwnTask, OwnTasks
from partitioning.model.stage_inputs import PlannedPartition, ResultInput
from partitioning.model.statistics import Statistics
from partitioning.model.streams import NullKeys, Stream
from partitioning.model.takes import Task
from partitioning.planning.exchanges.cuts import cuts
from partitioning.planning.stages.draft import StageDraft, TaskCount
from partitioning.planning.stages.hot_ranges import HEAVIER, MOST_TASKS, PART
from partitioning.planning.stages.scheme_choice import chosen_schemes, with_choices
from partitioning.planning.stages.waves import waves
from partitioning.planning.task_coverage import listed, unsound
from partitioning.sections import many
from partitioning.values import Value, replace


def spread(pipeline: Pipeline, settings: Settings, statistics: Statistics) -> Graph:
    """The graph to plan. Where the tasks of a partial step read ranges, several tasks have rows of one key.

    These rows must move before they are combined, even if their key is the one that places the stream.
    """
    graph = pipeline.graph
    if not any(scheme.most_records for scheme in chosen_schemes(pipeline, settings)):
        return graph
    try:
        chosen = with_choices(waves(*cuts(graph, statistics)).drafts, pipeline, settings)
    except Refused:
        # Cutting the stages refuses it again, with all other findings.
        return graph
    in_ranges = {
        step.name
        for draft in chosen
        if draft.choice.scheme is not None and draft.choice.scheme.most_records
        for step in draft.steps
        if step.op is Op.PARTIAL
    }
    steps = tuple(replace(step, rekeys=True) if step.name in in_ranges else step for step in graph.steps)
    return replace(graph, steps=steps)


def count_ranges(
    draft: StageDraft, count: TaskCount, streams: Sequence[Stream], planned: Mapping[str, Sequence[PlannedPartition]]
) -> TaskCount:
    """The number of tasks of a stage under the scheme `records`. The stage reads these streams; `planned` are their
    ranges.

    Raises Refused, with all findings, if the stage cannot split records by offset, or if there would be too many tasks.
    """
    refuse(_unsuited(draft, streams))
    most = count.scheme.most_records
    assert most is not None
    read = [partition for stream in streams for partition in planned[stream.name]]
    cosets = count.cosets + sum(how_many(partition.start, partition.end, most) - 1 for partition in read)
    if cosets > MOST_RANGES:
        largest = max(partition.records for partition in read)
        what = f"scheme {count.scheme} makes {cosets:,} tasks, more than {MOST_RANGES:,}"
        then = f"allow more records a task: the largest stream partition has {many(largest, 'record')}"
        raise Refused.of(Kind.SCHEME, what, "scheme", then, scheme=count.scheme, cosets=cosets)
    return replace(count, cosets=cosets)


def _unsuited(draft: StageDraft, streams: Sequence[Stream]) -> Iterator[Finding]:
    """Why the records of a stage that reads these streams may not be split by offsets."""
    where, scheme = f"stage {draft.name}", draft.choice.scheme
    keyed = [step for step in draft.steps if step.keyed]
    if keyed:
        names = ", ".join(step.name for step in keyed)
        what = f"scheme {scheme} keeps no keys together, but {names} needs them together"
        yield Finding.of(Kind.SCHEME, what, where, _instead([step.op for step in keyed]), scheme=scheme, names=names)
    if draft.choice.partitioner is not None:
        what = f"scheme {scheme} keeps no keys together, so a partitioner has none to assign"
        then = "leave the partitioner out, or use cogroup, elastic(F) or tasks(L)"
        yield Finding.of(Kind.SCHEME, what, where, then, scheme=scheme)
    if not streams:
        what = f"it reads no stream, so there are no offsets for {scheme} to assign"
        yield Finding.of(Kind.SCHEME, what, where, "leave the scheme to stages that read streams", scheme=scheme)
    for stream in streams:
        if stream.table:
            what = f"{stream.name} is a table: of each key only the latest record counts, wherever that lies"
            then = f"leave {scheme} to stages that read no table"
            yield Finding.of(Kind.SCHEME, what, where, then, stream=stream.name)
        if stream.null_keys is NullKeys.OWN_TASK:
            what = f"records of {stream.name} without a key have a task of their own, which reads whole partitions"
            then = f'declare null_keys="drop" or "refuse", or leave {scheme} out'
            yield Finding.of(Kind.SCHEME, what, where, then, stream=stream.name)


def _instead(ops: Sequence[Op]) -> str:
    """The next step where steps need keys together."""
    others = "cogroup, elastic(F) or tasks(L)"
    if all(op in (Op.AGGREGATE, Op.COMBINE) for op in ops):
        return f"aggregate by partial() and combine(), and give the scheme to the partial step alone; or use {others}"
    return f"use {others}, which assign records by key"


def range_findings(plan: Plan, stage: Stage) -> Iterator[Finding]:
    """Findings for a stage whose tasks read ranges: gaps and overlaps between ranges; other tasks beside them; tasks
    that read more than one range, or own keys; streams and steps whose records cannot be split by offset."""
    ranged = [task for task in stage.undivided if task.span is not None]
    if not ranged:
        return
    where = f"stage {stage.name}"
    for task in ranged:
        if wrong := _no_range(stage, task):
            what = f"task {task.task} reads the range {task.span}, but {wrong}"
            yield unsound(what, where, task=task.task, span=task.span)
    if keeping := [step.name for step in stage.steps if step.state]:
        what = f"tasks read ranges, but {listed(keeping)} goes on from its own last result"
        yield unsound(what, where, keeping=keeping)
    for read in stage.streams:
        declared = plan.stream(read.name).declared
        if declared.table or declared.null_keys is NullKeys.OWN_TASK:
            kind = "a table" if declared.table else "a stream whose records without a key have a task of their own"
            yield unsound(f"tasks read ranges beside {read.name}, which is {kind}", where, read=read.name, kind=kind)
        read_by = _spans(stage, read.name)
        for planned in plan.stream(read.name).partitions:
            spans = read_by.get(planned.partition, [])
            if any(span is not None for span in spans) and not make_up(spans, planned):
                said = listed("all of it" if span is None else span for span in spans)
                what = f"tasks read {said}, which do not make up [{planned.start},{planned.end})"
                yield unsound(what, f"{read.name}-{planned.partition}, {where}", start=planned.start, end=planned.end)


def _no_range(stage: Stage, task: Task) -> str | None:
    """Why a task cannot have a range."""
    streams = {read.name for read in stage.streams}
    partitions = [(name, number) for name, numbers in task.reads.items() for number in numbers]
    if len(partitions) != 1 or partitions[0][0] not in streams:
        return "not of one stream partition alone"
    return "owns keys or leaves some to others" if task.owns or task.filters or task.null_keys else None


def _spans(stage: Stage, name: str) -> Mapping[int, list[Span | None]]:
    """The ranges that tasks read of each partition, in order; None stands for the whole partition."""
    spans: dict[int, list[Span | None]] = {}
    for task in stage.undivided:
        for partition in task.reads.get(name, ()):
            spans.setdefault(partition, []).append(task.span)
    for of_one in spans.values():
        of_one.sort(key=lambda span: (-1, -1) if span is None else (span.start, span.end))
    return spans


def make_up(spans: Sequence[Span | None], planned: PlannedPartition) -> bool:
    """Whether each planned offset is in one of the ranges, no offset in two, and no range without any."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(span.start >= span.end for span in known):
        return False
    meeting = all(span.end == following.start for span, following in pairwise(known))
    return meeting and (known[0].start, known[-1].end) == (planned.start, planned.end)


# Steps that make each row of one record, or of some that need not be together.
_ALONE = {Op.FILTER, Op.SELECT, Op.REKEY, Op.REPARTITION, Op.MERGE, Op.PARTIAL}
_JOINED = re.compile(r'"[^"]*" AS "[^"]*" ((?:LEFT |FULL )?JOIN) "')


class Shared(Value, frozen=True):
    """How many `tasks` share a key, by ranges of the stream `ranged`; or should, if nothing kept its records
    `together`."""

    ranged: str
    tasks: int
    together: str


def splits_joins(steps: Sequence[Step]) -> bool:
    """Whether a stage with these steps gives the hot keys of its joins to several tasks, if they are to be split: what
    is combined is split in another way, and what is neither combined nor joined is left."""
    ops = {step.op for step in steps}
    return Op.JOIN in ops and Op.COMBINE not in ops


def kept_together(stream: str, streams: Sequence[Stream], steps: Sequence[Step], given: Collection[str]) -> str:
    """The step, stream or table that keeps the records of a key in one task, if those of a `stream` were in several.
    Empty if none does.

    A stage reads these `streams` and has these `steps`. The rows of those that are `given` leave it.
    """
    for read in streams:
        # Records that are set aside are kept once.
        if read.table if read.name == stream else read.sets_aside:
            return read.name
    parted = {stream}
    for step in steps:
        if step.state or step.on_dataframes:
            return step.name
        if parted.isdisjoint(step.inputs):
            continue
        alone = step.op in _ALONE and parted.issuperset(step.inputs)
        if not alone and not (step.op is Op.JOIN and _joins_one(step, parted)):
            return step.name
        parted.add(step.name)
    return next((name for name in given if name not in parted), "")


def _joins_one(step: Step, parted: Collection[str]) -> bool:
    """Whether a join makes rows of one record of its only side that is in several tasks."""
    sides = [number for number, name in enumerate(step.inputs) if name in parted]
    match join_of(step):
        case Join.INNER:
            return len(sides) == 1
        case Join.LEFT:
            return sides == [0]
        case Join.FULL | None:
            return False


def join_of(step: Step) -> Join | None:
    """What a join keeps, by its SQL; None if that is not SQL that `Flow.join` makes.

    >>> sql = 'SELECT "a"."k" AS "k", b.v FROM "a" AS "a" LEFT JOIN "b" AS "b" ON …'
    >>> print(join_of(Step("joined", Op.JOIN, ("a", "b"), sql, ("b.v",), "k")))
    left
    """
    _, _, joined = step.sql.partition(f", {step.expressions[0]} FROM ")
    found = _JOINED.match(joined)
    return next((join for join in Join if found and join.sql == found[1]), None)


def shares(ranged: int, copied: int, most: Fraction, *, before: bool = False) -> int:
    """How many tasks share a key that has so many records in the stream in ranges, and `copied` ones beside: as few as
    have no more than the `most` of a task without hot keys. A key that was shared `before` stays so for longer.

    >>> shares(40_000, 500, Fraction(7_500)), shares(40_000, 5_000, Fraction(7_500)), shares(8_000, 0, Fraction(7_500))
    (6, 1, 1)
    """
    if ranged + copied < HEAVIER[before] * most or 2 * copied > most:
        return 1
    return min(MOST_TASKS, -(-ranged // (most - copied)))


def least_share(taken: int, tasks: int) -> Fraction:
    """What tasks that share a key may always have, where so many `tasks` take so many records in all."""
    return PART * Fraction(taken, tasks)


def split_join_findings(plan: Plan, stage: Stage) -> Iterator[Finding]:
    """Findings for keys that several tasks share: these must be the same but for their ranges, which must make up what
    the batch reads of the key's partition; and no step may need their records together."""
    if not isinstance(why := stage.why, OwnTasks):
        return
    for own, numbers in zip(why.keys, why.numbers, strict=True):
        if own.tasks != 1 and (wrong := _wrong_share(plan, stage, own, numbers)):
            yield unsound(f"{own.tasks} tasks share {own.key}: {wrong}", f"stage {stage.name}", key=own.key)


def _wrong_share(plan: Plan, stage: Stage, own: OwnTask, numbers: range) -> str:
    """What is wrong with the tasks of a key."""
    tasks = [task for task in stage.tasks if task.task in numbers]
    alike = [replace(task, task=0, offsets=UNSET) for task in tasks]
    if not tasks or len(tasks) != own.tasks or any(task != alike[0] for task in alike):
        return "they do not read and take the same, but for their ranges"
    if own.ranged not in {read.name for read in stage.streams} or tasks[0].ranged != own.ranged:
        return f"their ranges are not those of {own.ranged or 'a stream'}"
    partitions = tasks[0].reads.get(own.ranged, ())
    if len(partitions) != 1:
        return f"they read several partitions of {own.ranged}"
    planned = plan.stream(own.ranged).partitions[partitions[0]]
    if not make_up([task.span for task in tasks], planned):
        whole = Span(planned.start, planned.end)
        return f"their ranges, in order, do not make up {whole} of {own.ranged}-{planned.partition}"
    streams = [plan.stream(read.name).declared for read in stage.streams]
    together = kept_together(own.ranged, streams, stage.steps, leaving(plan, stage))
    return f"{together} keeps its records together" if together else ""


def leaving(plan: Plan, stage: Stage) -> Mapping[str, None]:
    """The streams and steps whose rows leave a stage."""
    written = [write.declared.step for write in stage.writes]
    moved = [exchange.source for exchange in plan.exchanges if exchange.stage == stage.name]
    steps = {step.name for step in stage.steps}
    results = [read.step for other in plan.stages for read in other.inputs if isinstance(read, ResultInput)]
    return dict.fromkeys([*written, *moved, *(name for name in results if name in steps)])
