"""Watermarks of a plan: of each stream that says when its records happened, and of the steps that go by time; whether
what a join kept may be given by them, and which late records could not be set aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from partitioning.authoring.state_sql import sets_late_aside
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op, StateSpec, Step
from partitioning.model.plan import Plan, Stage
from partitioning.model.stage_inputs import ExchangeInput, PlannedStream, ResultInput
from partitioning.model.watermarks import EventTime, LatestTimes, TimePassed, Watermark
from partitioning.planning.flow_times import FlowTimes
from partitioning.planning.kept_columns import kept_before
from partitioning.planning.step_texts import near
from partitioning.values import replace


def watermarks(
    streams: Sequence[PlannedStream], published: Plan | None, counted: Sequence[LatestTimes], as_of: int | None
) -> tuple[Watermark, ...]:
    """The watermarks of a batch that reads these streams and is planned at this minute.

    `counted` has the latest times of the last published batch, by its verdict.
    """
    known = {each.stream: each for each in counted}
    return tuple(
        _watermark(stream, stream.declared.time, _before(stream, published), known.get(stream.name), as_of)
        for stream in streams
        if stream.declared.time
    )


def _before(stream: PlannedStream, published: Plan | None) -> Watermark | None:
    """The watermark of the last published batch, if it went by the same expression."""
    was = next((read for read in published.streams if read.name == stream.name), None) if published else None
    if not published or not was or not was.declared.time:
        return None
    same = stream.declared.time and was.declared.time.sql == stream.declared.time.sql
    return published.watermark(stream.name) if same else None


def _watermark(
    stream: PlannedStream, event: EventTime, before: Watermark | None, counted: LatestTimes | None, as_of: int | None
) -> Watermark:
    numbers = range(len(stream.partitions))
    was = LatestTimes(stream.name, before.latest if before else ())
    now = counted if before and counted else LatestTimes(stream.name, ())
    latest = tuple(_latest(was.of(number), now.of(number)) for number in numbers)
    quiet_before = LatestTimes(stream.name, before.quiet if before else ())
    quiet = tuple(
        None if planned.end > planned.start else _first(quiet_before.of(planned.partition), as_of)
        for planned in stream.partitions
    )
    idle = tuple(
        number
        for number, since in enumerate(quiet)
        if since is not None and as_of is not None and as_of - since >= event.idle
    )
    silent = tuple(
        number
        for number, since in enumerate(quiet)
        if event.behind is not None and since is not None and quiet_before.of(number) is not None
    )
    mark = Watermark(stream.name, before.time if before else None, latest, quiet, idle, silent, event.behind)
    reached = mark.reached
    return replace(mark, time=_latest(mark.time, None if reached is None else reached - event.late))


def with_watermarks(graph: Graph, marks: Sequence[Watermark], published: Plan | None) -> Graph:
    """The graph with the watermarks of all steps that keep rows for a time.

    Steps of which a stream does not say its times go by the latest time that they keep.
    """
    passed = dict(_passed(graph, FlowTimes(graph, marks), published))
    return replace(graph, steps=tuple(_with(step, passed.get(step.name)) for step in graph.steps))


def _with(step: Step, passed: TimePassed | None) -> Step:
    return replace(step, state=replace(step.state, watermark=passed)) if step.state and passed else step


def _passed(graph: Graph, times: FlowTimes, published: Plan | None) -> Iterator[tuple[str, TimePassed]]:
    kept = {step.name: step for step in published.steps if step.state} if published else {}
    for step in graph.steps:
        if not step.state or not (step.state.sql or step.state.of_lives) or (flow := times.before(step)) is None:
            continue
        now, was = flow.time, kept.get(kept_before(step, kept))
        if not was or not was.state:
            yield step.name, TimePassed(None, now)
        elif was.state.watermark is None:
            # What it kept before it went by a watermark is not given late.
            yield step.name, TimePassed(now, now)
        else:
            before = was.state.watermark.now
            yield step.name, TimePassed(before, _latest(before, now))


def _latest(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def waits_changed(was: Step, before: Graph, step: Step, now: Graph) -> Iterator[tuple[str, str, str]]:
    """The old and new time for which the records of a step wait, or are kept, if those that it kept cannot go by the
    new one: nobody knows any more which of them were given by the old one, or had met a partner by it.

    Of windows, the length is among the expressions.
    """
    if not was.state or not step.state or was.expressions != step.expressions:
        return
    waited, waits = _waited(was, before), _waited(step, now)
    kept, keeps = was.state, step.state
    if keeps.waits is not None and waited is not None and waited != waits:
        yield "time to wait", _text(waited), _text(waits)
    elif (keeps.waits is not None and kept.waits is None and kept.microseconds < keeps.microseconds) or (
        keeps.newest and not kept.newest
    ):
        yield "time to keep records", _kept(kept), _kept(keeps)


def _waited(step: Step, graph: Graph) -> int | None:
    """How long the records of a step wait, or those of the other side of its join; of an inner join, how far apart in
    time records may be."""
    steps = {each.name: each for each in graph.steps}
    joins = [each for each in graph.steps if each.op is Op.JOIN and step.name in each.inputs]
    sides = [step, *(steps[name] for each in joins for name in each.inputs if name in steps)]
    waits = [side.state.waits for side in sides if side.state and side.state.waits is not None]
    return waits[0] if waits else next((apart for each in joins if (apart := near(each)) is not None), None)


def _kept(state: StateSpec) -> str:
    return f"{_text(state.microseconds)}{' and the newest of each key' if state.newest else ''}"


def _text(microseconds: int | None) -> str:
    return str(timedelta(microseconds=microseconds or 0))


def late_findings(plan: Plan) -> Iterator[Finding]:
    """The windows that set late records aside and read records which have moved, or which another stage has made: they
    have no offset any more, so a late one would stop the batch."""
    for stage in plan.stages:
        for step in stage.steps:
            if sets_late_aside(step):
                yield from (_finding(step, name) for name in _handed_on(stage, step))


def _handed_on(stage: Stage, step: Step) -> Iterator[str]:
    """The streams and steps before a step whose records other tasks have written."""
    steps, before = {each.name: each for each in stage.steps}, [*step.inputs]
    for name in before:
        before.extend(each for each in (steps[name].inputs if name in steps else ()) if each not in before)
    for read in stage.inputs:
        if isinstance(read, ExchangeInput | ResultInput) and read.step in before:
            yield read.step


def _finding(step: Step, name: str) -> Finding:
    what = f"records of {name!r} move before it, and behind that nobody knows whose they are, to set a late one aside"
    then = 'use late="drop" or "correct", for as long as they move; what is kept stays'
    return Finding.of(Kind.DECLARATION, what, f"step {step.name!r}", then, step=step.name, moved=name)
