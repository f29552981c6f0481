"""The site of the Data Docs, a local folder and the store, and what the history says of the parts of a batch."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partitioning.documents.store import Store
from partitioning.errors import Refused, docs_unwritten
from partitioning.model.journal import JournalEntry, Lag
from partitioning.model.verdict import Outcome
from partitioning.sections import duration, many

# An attempt in a list: what became of it, and its figures by their names.
Row = Mapping[str, Any]
# Airflow's own variable: where its pages are, as browsers see them.
AIRFLOW = "AIRFLOW__API__BASE_URL"


@dataclass(frozen=True, slots=True)
class Site:
    """Pages go to `<pipeline>/docs/` in the store and to `<pipeline>/` in a local folder, if there is one."""

    folder: Path | None
    store: Store

    @classmethod
    def shown(cls, folder: Path | None, store: Store, pipeline: str) -> Site:
        """The site, with the folder only if it shows the pipeline already: a change of what it shows makes no other."""
        there = folder is not None and (folder / pipeline / "index.html").exists()
        return cls(folder if there else None, store)

    def has(self, pipeline: str, name: str) -> bool:
        """Whether the folder has this page."""
        return self.folder is not None and (self.folder / pipeline / name).exists()

    def write(self, pipeline: str, name: str, text: str) -> Path | None:
        """Write a page into the folder, and return its path. Raises Refused if that fails."""
        if self.folder is None:
            return None
        page = self.folder / pipeline / name
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(docs_unwritten(self.folder, error)) from error
        return page


def outcome(row: Row) -> Outcome:
    """The outcome of a row's attempt. Rows of earlier versions only say whether it was proved."""
    return Outcome(row["outcome"]) if "outcome" in row else Outcome.PROVED if row["success"] else Outcome.FAILED


def state(row: Row) -> str:
    """The outcome of a row's attempt, for people, with how many warnings it has."""
    return outcome(row).of(row.get("warnings") or 0)


def style(row: Row) -> str:
    """The name by which a page colours the outcome of a row's attempt."""
    warned = outcome(row) is Outcome.PROVED and outcome(row).is_warned(row.get("warnings") or 0)
    return "warned" if warned else outcome(row).name.lower()


def listed(store: Store, pipeline: str, name: str) -> list[dict[str, Any]]:
    """The stored rows of a list of a pipeline's pages."""
    rows: list[dict[str, Any]] = json.loads(store.get(f"{pipeline}/docs/{name}.json") or b"[]")
    return rows


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
