"""Watermarks for people: up to which time each stream has come, and which partition holds it back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from partitioning.model.graph import StateSpec, waiting
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.watermarks import Watermark
from partitioning.sections import Section, duration, runs

WAITING = ("step", "waits", "was over before", "is over in this batch before", "is kept after that")
COLUMNS = ("stream", "watermark", "held back by", "its latest time", "idle partitions")


def watermarks_section(marks: Sequence[Watermark]) -> Iterator[Section]:
    """The watermarks, if any stream says when its records happened."""
    if marks:
        notes = ("No record before its stream's watermark is expected any more; one that comes all the same is late.",)
        yield Section("Watermarks", COLUMNS, tuple(map(watermark_row, marks)), notes)


def waiting_section(plan: Plan) -> Iterator[Section]:
    """The steps that give what is over, if there are any: up to which time that was given, and is in this batch."""
    steps = {step.name: step for stage in plan.stages if not stage.repeats for step in stage.steps}
    sides = [steps[name] for step in steps.values() for name in waiting(step, steps)]
    if rows := tuple(_waiting_row(side.name, side.state) for side in sides if side.state):
        notes = ["What is this much before the watermark of all that the step comes from is over, and is given once."]
        if lives := [side.name for side in sides if side.state and side.state.of_lives]:
            notes.append(f"Of {' and '.join(lives)} it is keys that expire, so long after their last record.")
        yield Section("What waits until it is over", WAITING, rows, tuple(notes))


def _waiting_row(step: str, state: StateSpec) -> tuple[str, ...]:
    passed, waits = state.watermark, state.waits or 0
    times = (passed.before, passed.now) if passed else (None, None)
    longer = duration((state.microseconds - waits) / 10**6) if state.microseconds > waits else ""
    return (
        step,
        duration(math.ceil((state.gap or waits) / 10**6)),
        *(event_time(time - (state.gap or waits)) if time is not None else "nothing yet" for time in times),
        longer,
    )


def watermark_row(mark: Watermark) -> tuple[str, ...]:
    """A watermark in columns."""
    slowest = mark.slowest
    held = "none: all are idle" if slowest is None else str(StreamPartition(mark.stream, slowest))
    latest = None if slowest is None else mark.latest[slowest]
    return (
        mark.stream,
        event_time(mark.time) if mark.time is not None else "not known yet",
        held,
        event_time(latest) if latest is not None else "no record yet" if slowest is not None else "",
        ", ".join(runs(mark.idle)),
    )


def event_time(microseconds: int) -> str:
    """An event time in UTC, to the second.

    >>> event_time(1_795_514_400_000_000)
    '2026-11-24 10:00:00'
    """
    try:
        return datetime.fromtimestamp(microseconds // 10**6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{microseconds:,} µs after 1970"
