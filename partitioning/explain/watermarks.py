"""Watermarks for people: up to which time each stream has come, and which partition holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from partitioning.model.offsets import StreamPartition
from partitioning.model.watermarks import Watermark
from partitioning.sections import Section, runs

COLUMNS = ("stream", "watermark", "held back by", "its latest time", "idle partitions")


def watermarks_section(marks: Sequence[Watermark]) -> Iterator[Section]:
    """The watermarks, if any stream says when its records happened."""
    if marks:
        notes = ("No record before its stream's watermark is expected any more; one that comes all the same is late.",)
        yield Section("Watermarks", COLUMNS, tuple(map(watermark_row, marks)), notes)


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
