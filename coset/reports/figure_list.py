"""Figures of the history: their names in the rows of an index, their titles, and how their values are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from partitioning.model.measures import FigureForm, Measure
from partitioning.sections import duration, size


class FigureTopic(StrEnum):
    """What figures are about, as the history orders them."""

    BEHIND = "How far behind"
    TIME = "How long it took"
    RECORDS = "What was read and moved"
    TASKS = "How even the tasks were"
    RESULTS = "What was left"
    MEASURED = "What expectations measured"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that rows have, of a result table if one is named: of those that are `listed` so. `beside` it stands
    what a row says of it in words."""

    name: str
    title: str
    form: Callable[[Any], str]
    topic: FigureTopic
    table: str = ""
    listed: str = "tables"
    beside: str = ""

    @property
    def goes_by_tasks(self) -> bool:
        """Whether another scheme or number of tasks makes another value of it, so that only batches of the same tell
        what is usual."""
        return self.topic in (FigureTopic.TIME, FigureTopic.TASKS) or self.name in _BY_TASKS

    @property
    def weight(self) -> int:
        """Where it comes among those that are asked for first; after all of them if it is none."""
        return _FOREMOST.index(self.name) if self.name in _FOREMOST and not self.table else OTHER

    def value(self, row: Mapping[str, Any]) -> float | None:
        """A row's value; None if it is not known."""
        held: Mapping[str, Any] = row.get(self.listed, {}).get(self.table, {}) if self.table else row
        return held.get(self.name)

    def text(self, row: Mapping[str, Any]) -> str:
        """A row's value for people."""
        value = self.value(row)
        return "–" if value is None else self.form(value)


# What is asked first: how far behind a batch was, what it read and wrote, what is amiss in it, and how long it ran.
_FOREMOST = ("lag_seconds", "records", "rows", "set_aside", "warnings", "seconds")
_BY_TASKS = ("moved", "spared", "row_bytes")
# The weight of all other figures.
OTHER = len(_FOREMOST)
_COUNT, _SECONDS, _TIMES, _SHARE = "{:,}".format, "{:,.1f} s".format, "{:.2f}".format, "{:.1%}".format
FIGURES = (
    Figure("lag_records", "Lag when planned, in records", _COUNT, FigureTopic.BEHIND, beside="lag_worst"),
    Figure("lag_seconds", "Lag when planned, in time", duration, FigureTopic.BEHIND, beside="lag_worst"),
    Figure("seconds", "Tasks ran", _SECONDS, FigureTopic.TIME),
    Figure("cpu_seconds", "CPU", _SECONDS, FigureTopic.TIME),
    Figure("plan_seconds", "Planning took", _SECONDS, FigureTopic.TIME),
    Figure("audit_seconds", "Audit took", _SECONDS, FigureTopic.TIME),
    Figure("check_seconds", "Check took", _SECONDS, FigureTopic.TIME),
    Figure("publish_seconds", "Publishing took", _SECONDS, FigureTopic.TIME),
    Figure("records", "Records", _COUNT, FigureTopic.RECORDS),
    Figure("read_bytes", "Read", size, FigureTopic.RECORDS),
    Figure("moved", "Records moved", _COUNT, FigureTopic.RECORDS),
    Figure("spared", "Records spared a move", _COUNT, FigureTopic.RECORDS),
    Figure("without_key", "Without a key", _COUNT, FigureTopic.RECORDS),
    Figure("set_aside", "Set aside", _COUNT, FigureTopic.RECORDS),
    Figure("expired", "Keys that expired", _COUNT, FigureTopic.RECORDS),
    Figure("missing", "Missing offsets", _COUNT, FigureTopic.RECORDS),
    Figure("keys", "Keys compared", _COUNT, FigureTopic.RECORDS),
    Figure("tasks", "Tasks", _COUNT, FigureTopic.TASKS),
    Figure("skew", "Largest task / mean", _TIMES, FigureTopic.TASKS),
    Figure("group_skew", "Largest group / mean", _TIMES, FigureTopic.TASKS),
    Figure("heaviest", "Heaviest key", lambda share: _SHARE(share) if share else "none", FigureTopic.TASKS),
    Figure("misjudged", "Records planned wrongly", _SHARE, FigureTopic.TASKS),
    Figure("mistimed", "Time expected wrongly", _SHARE, FigureTopic.TASKS),
    Figure("rows", "Rows written", _COUNT, FigureTopic.RESULTS),
    Figure("row_bytes", "Written", size, FigureTopic.RESULTS),
    Figure("state", "Rows of state left", _COUNT, FigureTopic.RESULTS),
    Figure("warnings", "Warnings", _COUNT, FigureTopic.RESULTS),
)
_OF_TABLES = {"rows": "rows", "row_bytes": "bytes"}


def figures_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """The figures that rows may have: those of each result table apart, if there are several."""
    known = list(rows)
    asked = sorted({(table, one) for row in known for table, of in row.get("measured", {}).items() for one in of})
    measured = tuple(_measured(table, Measure.read(one)) for table, one in asked)
    tables = sorted({table for row in known for table in row.get("tables", ())})
    if len(tables) < 2:
        return (*FIGURES, *measured)
    forms = {figure.name: figure.form for figure in FIGURES}
    each = (
        Figure(name, f"{table}: {title}", forms[name], FigureTopic.RESULTS, table)
        for table in tables
        for name, title in _OF_TABLES.items()
    )
    return (*FIGURES, *each, *measured)


def _measured(table: str, measure: Measure) -> Figure:
    """The figure of a ready-made expectation. Of a latest time, it is how old that was when the batch was planned."""
    kind, of = measure.kind, measure.of
    title = f"{table}: {kind.called.format(of=of)}"
    return Figure(str(measure), title, _FORMS[kind.form], FigureTopic.MEASURED, table, "measured")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


_FORMS: Mapping[FigureForm, Callable[[Any], str]] = {
    FigureForm.COUNT: _COUNT,
    FigureForm.SHARE: _SHARE,
    FigureForm.AGE: duration,
    FigureForm.NUMBER: _number,
}
