"""Watermarks of a plan: of each stream that says when its records happened, and of the steps that go by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from partitioning.model.graph import Graph, Op, Step, waiting
from partitioning.model.plan import Plan
from partitioning.model.planned_streams import PlannedStream
from partitioning.model.watermarks import EventTime, LatestTimes, TimePassed, Watermark
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
    reached = _reached([latest[number] for number in numbers if number not in idle], latest)
    time = _latest(before.time if before else None, None if reached is None else reached - event.late)
    return Watermark(stream.name, time, latest, quiet, idle)


def _reached(waiting: Sequence[int | None], latest: Sequence[int | None]) -> int | None:
    """The time that all partitions that count have reached: the slowest of those that may still bring records."""
    known = [time for time in waiting if time is not None]
    if not waiting:
        return max((time for time in latest if time is not None), default=None)
    return min(known) if len(known) == len(waiting) else None


def with_watermarks(graph: Graph, marks: Sequence[Watermark], published: Plan | None) -> Graph:
    """The graph whose steps that keep rows for a time know the watermark of what they come from.

    Behind a step that gives rows once their time is over, the watermark is earlier by as much as they may be older.
    Steps of which a stream does not say its times go by the latest time that they keep.
    """
    passed = dict(_passed(graph, {each.stream: each for each in marks}, published))
    return replace(graph, steps=tuple(_with(step, passed.get(step.name)) for step in graph.steps))


def _with(step: Step, passed: TimePassed | None) -> Step:
    return replace(step, state=replace(step.state, watermark=passed)) if step.state and passed else step


def _passed(graph: Graph, marks: Mapping[str, Watermark], published: Plan | None) -> Iterator[tuple[str, TimePassed]]:
    steps = {step.name: step for step in graph.steps}
    tables = {stream.name for stream in graph.streams if stream.table}
    # Both sides of a join wait for each other.
    together = {
        name: step.inputs for step in graph.steps for name in step.inputs if steps.get(name, step).op is Op.RECENT
    }
    kept = {step.name: step for stage in published.stages for step in stage.steps if step.state} if published else {}
    behind = _behind(steps)
    for step in graph.steps:
        if not step.state or not (step.state.sql or step.state.of_lives):
            continue
        sides = together.get(step.name, (step.name,))
        streams = _streams(sides, steps) - tables
        if not streams or not streams <= marks.keys():
            continue
        times = [marks[name].time for name in sorted(streams)]
        known = [time for time in times if time is not None]
        late = max(behind(name) for side in sides for name in steps[side].inputs)
        now = min(known) - late if len(known) == len(times) else None
        was = kept.get(kept_before(step, kept))
        if not was or not was.state:
            yield step.name, TimePassed(None, now)
        elif was.state.watermark is None:
            # What it kept before it went by a watermark is not given late.
            yield step.name, TimePassed(now, now)
        else:
            before = was.state.watermark.now
            yield step.name, TimePassed(before, _latest(before, now))


def _behind(steps: Mapping[str, Step]) -> Callable[[str], int]:
    """By how many microseconds the rows of a step may be older than the watermark of its streams, as they are given
    once their time is over, or again."""

    @cache
    def behind(name: str) -> int:
        if (step := steps.get(name)) is None:
            return 0
        sides = [side.state for each in waiting(step, steps) if (side := steps[each]).state]
        own = [side.microseconds if step.op is Op.AGGREGATE else side.waits or 0 for side in sides if side]
        return max(map(behind, step.inputs), default=0) + max(own, default=0)

    return behind


def _streams(names: Sequence[str], steps: Mapping[str, Step]) -> set[str]:
    """The streams that steps come from."""
    seen, todo = set[str](), [*names]
    while todo:
        if (at := todo.pop()) not in seen:
            seen.add(at)
            todo.extend(steps[at].inputs if at in steps else ())
    return seen - steps.keys()


def _latest(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one
