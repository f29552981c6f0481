"""Incidents on the command line: what is open, and what was."""

from __future__ import annotations

from typing import Any

from coset.batches.watch import IncidentLog
from coset.cli import pipelines
from coset.cli.output import Answer, Table
from partitioning.documents.stores import store_at
from partitioning.model.incident import Incident, WatchedRuns, cause
from partitioning.model.journal import as_iso, as_time
from partitioning.texts import visible

_COLUMNS = ("incident", "severity", "since", "until", "cause", "failures", "last batch", "owner")


def listed(named: str, root: str, *, ended: bool) -> Answer:
    """The open incidents of all runs of a pipeline, and those that have ended if they are asked for."""
    name = pipelines.load(named).name
    found = list[tuple[WatchedRuns, Incident]]()
    for runs in WatchedRuns:
        log = IncidentLog(store_at(root), name, runs)
        found += ((runs, each) for each in log.latest().open)
        found += ((runs, each) for each in log.ended()) if ended else ()
    # The open ones first, then the newest.
    found.sort(key=lambda each: (each[1].ended is not None, -each[1].began))
    opened = sum(incident.ended is None for _, incident in found)
    said = f"{name}: {opened or 'nothing'} {'are' if opened > 1 else 'is'} open"
    columns = tuple(column for column in _COLUMNS if ended or column != "until")
    rows = [_row(incident, runs, ended=ended) for runs, incident in found]
    table = Table(f"{said}.", columns, rows, empty=f"{said}, and nothing was." if ended else f"{said}.")
    return Answer([_plain(incident, runs) for runs, incident in found], [table])


def _row(incident: Incident, runs: WatchedRuns, *, ended: bool) -> tuple[str, ...]:
    until = "" if incident.ended is None else as_time(incident.ended)
    return (
        str(incident.number) if runs is WatchedRuns.BATCHES else f"{incident.number} of {runs}",
        incident.severity,
        as_time(incident.began),
        *((until,) if ended else ()),
        cause(incident),
        f"{incident.failures:,}",
        "–" if incident.batch is None else str(incident.batch),
        visible(incident.owner) or "–",
    )


def _plain(incident: Incident, runs: WatchedRuns) -> dict[str, Any]:
    trouble = incident.trouble
    return {
        "incident": incident.number,
        "of": runs,
        "open": incident.ended is None,
        "severity": incident.severity,
        "since": as_iso(incident.began),
        "last": as_iso(incident.last),
        "until": None if incident.ended is None else as_iso(incident.ended),
        "kinds": list(trouble.cause),
        "cause": trouble.what,
        "where": trouble.where,
        "next": pipelines.shown().says(trouble.then),
        "failures": incident.failures,
        "batch": incident.batch,
        "published": incident.published,
        "owner": incident.owner,
    }
