"""Watermarks for people: up to which time each stream has come and its rows were given, the partition that holds it
back, and the batch with the rows of an hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from partitioning.model.graph import Graph
from partitioning.model.offsets import StreamPartition
from partitioning.model.watermarks import EventTime, Watermark
from partitioning.planning.flow_times import FlowTime, FlowTimes, needed
from partitioning.sections import Section, cut, duration, runs, section
from partitioning.values import Value

COLUMNS = ("stream", "watermark", "held back by", "its latest time", "waited for in plans before", "idle partitions")
OPTIONAL = ("waited for in plans before", "idle partitions")
_MICROSECOND = timedelta(microseconds=1)


class Period(Value, frozen=True):
    """A stretch of event time of which somebody wants the rows, in microseconds."""

    start: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Period:
        """The day 2026-11-27, the hour 2026-11-27T10 or the minute 2026-11-27T10:30, in UTC unless it names a zone.

        Raises ValueError for what is none of them.
        """
        said = datetime.fromisoformat(text)
        _, _, clock = text.replace(" ", "T").partition("T")
        length = timedelta(minutes=1) if ":" in clock[:5] else timedelta(hours=1) if clock else timedelta(days=1)
        start = (said.astimezone(UTC) if said.tzinfo else said.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
        return cls(start // _MICROSECOND, (start + length) // _MICROSECOND)

    def __str__(self) -> str:
        return f"{event_time(self.start)} to {event_time(self.end)}"


class MarkedBatch(Value, frozen=True):
    """What a batch is called, and the watermarks by which it goes."""

    name: str
    marks: tuple[Watermark, ...]


def watermarks_section(marks: Sequence[Watermark], graph: Graph) -> Iterator[Section]:
    """The watermarks, if any stream says when its records happened."""
    if marks:
        times = _times(graph)
        rows = [_watermark(mark, times[mark.stream]) for mark in marks]
        notes = ["No record before its stream's watermark is expected any more; one that comes all the same is late."]
        if any(row[-2] for row in rows):
            notes.append("Who has no new record is waited for as long as idle= says; behind= says how far at most.")
        yield section("Watermarks", COLUMNS, rows, notes, optional=OPTIONAL)


def waiting_section(graph: Graph, batch: MarkedBatch) -> Iterator[Section]:
    """The steps that give what is over, if there are any: up to which time that was given, and is in a batch; and up to
    which time all their rows are there then, as the sum of what holds them back."""
    given = list(FlowTimes(graph, batch.marks).given())
    rows = [
        (
            each.step,
            duration(math.ceil(each.waits / 10**6)),
            *("nothing yet" if time is None else event_time(time) for time in (each.before, each.now)),
            duration(each.kept / 10**6) if each.kept else "",
        )
        for each in given
    ]
    if not rows:
        return
    notes = ["What is this much before the watermark of all that the step waits for is over, and is given once."]
    if keys := [each.step for each in given if each.of_keys]:
        notes.append(f"Of {' and '.join(keys)} it is keys that expire, so long after their last record.")
    columns = ("step", "waits", "was over before", f"is over in {batch.name} before", "is kept after that")
    yield section("What waits until it is over", columns, rows, notes, optional=columns[-1:])
    sums = [(each.step, _before(each.there.time), _because(each.there, batch.marks, _times(graph))) for each in given]
    yield section(f"When all rows are there, after {batch.name}", ("step", "rows before", "that is"), sums)


def _before(time: int | None) -> str:
    return "none yet" if time is None else event_time(time)


class Need(Value, frozen=True):
    """What a stream has to bring before rows come: a record of this time or later, in each of these partitions."""

    stream: str
    time: int
    partitions: tuple[int, ...]


class Coming(Value, frozen=True):
    """Whether all rows of a step came before a batch, or come with it; and else what has to be read before."""

    step: str
    came: bool
    comes: bool
    needs: tuple[Need, ...] = ()


def coming(graph: Graph, period: Period, published: MarkedBatch | None, batch: MarkedBatch) -> Iterator[Coming]:
    """When all rows of a period come, of each step that gives what is over, as planning decides it."""
    came = FlowTimes(graph, published.marks if published else ())
    for each in FlowTimes(graph, batch.marks).given():
        was, comes = _there(came.of(each.step), period), _there(each.there, period)
        yield Coming(each.step, was, comes, () if comes else tuple(_needs(graph, each.step, period, batch.marks)))


def when_section(period: Period, found: Sequence[Coming], published: MarkedBatch | None, batch: MarkedBatch) -> Section:
    """The same for people."""
    rows = list[tuple[str, ...]]()
    for each in found:
        if each.came or each.comes:
            rows.append(
                (each.step, f"{published.name}, or came before" if each.came and published else batch.name, "", "", "")
            )
        for number, need in enumerate(each.needs):
            step, then = ("", "and") if number else (each.step, "the first batch")
            rows.append((step, then, need.stream, f"{event_time(need.time)} or later", cut(runs(need.partitions))))
    notes = [
        "A window or session is of the time at which it begins. A session that ends before others comes before them."
    ]
    if not rows:
        none = "No step waits: each row comes with the batch that reads its record."
        notes = [none if batch.marks else "No watermark is known before a batch is published."]
    columns = ("step", "come with", "after one that reads of", "in each partition a record of", "not yet in")
    return section(f"When all rows of {period} come", columns, rows, notes, optional=columns[2:])


def _there(flow: FlowTime | None, period: Period) -> bool:
    return flow is not None and flow.time is not None and flow.time >= period.end


def _needs(graph: Graph, step: str, period: Period, marks: Sequence[Watermark]) -> Iterator[Need]:
    times, known = _times(graph), {mark.stream: mark for mark in marks}
    for stream, watermark in needed(graph, step, period.end, marks).items():
        mark = known[stream]
        if mark.time is None or mark.time < watermark:
            # A silent partition counts as so far behind the others.
            least = watermark + times[stream].late + (mark.behind or 0 if mark.silent else 0)
            behind = (number for number in range(len(mark.latest)) if _is_behind(mark, number, least))
            yield Need(stream, least, tuple(behind))


def _is_behind(mark: Watermark, partition: int, least: int) -> bool:
    latest = mark.latest[partition]
    is_waited_for = partition not in (*mark.idle, *(mark.silent if latest is None else ()))
    return is_waited_for and (latest is None or latest < least)


def _because(flow: FlowTime, marks: Sequence[Watermark], times: Mapping[str, EventTime]) -> str:
    """The sum that gives up to which time all rows are there."""
    (mark,) = (mark for mark in marks if mark.stream == flow.stream)
    slowest, late = mark.slowest, times[flow.stream].late
    held = flow.stream if slowest is None else str(StreamPartition(flow.stream, slowest))
    if mark.time is None:
        return f"{held} has no record yet"
    less = [(late, "late="), *((each.microseconds, f"{each.why}= of {each.step}") for each in flow.less)]
    taken = (f"less {timedelta(microseconds=span)} ({what})" for span, what in less if span)
    # A watermark never goes back.
    held = held if mark.reached is not None and mark.reached - late == mark.time else flow.stream
    return ", ".join([f"{event_time(mark.time + late)} of {held}", *taken])


def _watermark(mark: Watermark, event: EventTime) -> tuple[str, ...]:
    slowest = mark.slowest
    held = "none: all are idle" if slowest is None else str(StreamPartition(mark.stream, slowest))
    latest = None if slowest is None else mark.latest[slowest]
    quiet = None if slowest is None else mark.quiet[slowest]
    return (
        mark.stream,
        event_time(mark.time) if mark.time is not None else "not known yet",
        held,
        event_time(latest) if latest is not None else "no record yet" if slowest is not None else "",
        "" if quiet is None else event_time(quiet + event.idle),
        ", ".join(runs(mark.idle)),
    )


def _times(graph: Graph) -> Mapping[str, EventTime]:
    return {stream.name: stream.time for stream in graph.streams if stream.time}


def event_time(microseconds: int) -> str:
    """An event time in UTC, to the second.

    >>> event_time(1_795_514_400_000_000)
    '2026-11-24 10:00:00'
    """
    try:
        return datetime.fromtimestamp(microseconds // 10**6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{microseconds:,} µs after 1970"
