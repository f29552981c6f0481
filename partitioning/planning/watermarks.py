"""Watermarks of a plan: of each stream that says when its records happened, and of the steps that go by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.model.graph import Graph, Step
from partitioning.model.plan import Plan
from partitioning.model.planned_streams import PlannedStream
from partitioning.model.watermarks import EventTime, LatestTimes, TimePassed, Watermark
from partitioning.planning.flow_times import FlowTimes
from partitioning.planning.kept_before import kept_before
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
        if isinstance(stream.declared.time, EventTime)
    )


def _before(stream: PlannedStream, published: Plan | None) -> Watermark | None:
    """The watermark of the last published batch, if it went by the same expression."""
    was = next((read for read in published.streams if read.name == stream.name), None) if published else None
    if not published or not was or not isinstance(was.declared.time, EventTime):
        return None
    same = isinstance(stream.declared.time, EventTime) and was.declared.time.sql == stream.declared.time.sql
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
    kept = {step.name: step for stage in published.stages for step in stage.steps if step.state} if published else {}
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
