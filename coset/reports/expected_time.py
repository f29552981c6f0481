"""The pace of a pipeline: how many seconds its task groups took for a planned byte, so how long they may be expected to
take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from coset.reports.site import Row

_LEARNED_FROM = 30


def pace_of(before: Iterable[Row]) -> float | None:
    """The median of the last attempts that were proved, newest first; None if no times of theirs are known.

    >>> pace_of([{"success": True, "work_seconds": 2.0, "work_bytes": 4}, {"success": False}]), pace_of([])
    (0.5, None)
    """
    known = [
        row["work_seconds"] / row["work_bytes"]
        for row in before
        if row["success"] and row.get("work_seconds") and row.get("work_bytes")
    ]
    return statistics.median(known[:_LEARNED_FROM]) if known else None


def beside_expected(pace: float | None, seconds: float | None, planned_bytes: int) -> dict[str, Any]:
    """The figures of a row about the time of its task groups together, and about the expected time."""
    if seconds is None:
        return {}
    said: dict[str, Any] = {"work_seconds": seconds, "work_bytes": planned_bytes}
    expected = None if pace is None else pace * planned_bytes
    if expected is not None and (most := max(expected, seconds)):
        said |= {"expected_seconds": round(expected, 3), "mistimed": round(abs(expected - seconds) / most, 4)}
    return said
