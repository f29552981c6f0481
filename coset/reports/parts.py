"""What a row of the history says of the parts of a batch: how long each took, and how far behind the pipeline was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from partitioning.model.journal import JournalEntry, Lag
from partitioning.sections import duration, many


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
