"""What a row of the history says of the parts of a batch: how long each took, how long it was expected to take by the
pipeline's pace, and how far behind the pipeline was."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from coset.reports.site import Row
from partitioning.model.journal import JournalEntry, Lag
from partitioning.sections import duration, many

_LEARNED_FROM = 30


def of_parts(done: Iterable[JournalEntry]) -> dict[str, Any]:
    """The figures of what was done, by their names in a row; and the run of Airflow's in which, if it was one."""
    said: dict[str, Any] = {}
    for each in done:
        said[f"{each.part}_seconds"] = max(0, each.at.ended - each.at.began) / 1000
        said |= {"run": each.at.run} if each.at.run else {}
        if each.lag is not None:
            said |= {"lag_records": each.lag.records, "lag_seconds": each.lag.milliseconds / 1000}
            said |= {"lag_worst": worst} if (worst := _worst(each.lag)) else {}
    return said


def _worst(lag: Lag) -> str:
    """The partitions that are behind most."""
    if not lag.most_in:
        return ""
    waited = duration(lag.milliseconds / 1000)
    return f"{lag.most_in} with {many(lag.most, 'record')}, and {lag.oldest_in} for {waited}"


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
