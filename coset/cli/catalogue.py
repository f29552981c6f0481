"""The catalogue: all pipelines of the project and of the store, with their newest attempts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from coset.cli import pipelines
from coset.cli.output import Answer, Table
from coset.reports.overview import reported, rows_of
from coset.reports.site import state
from coset.reports.timeliness import timeliness
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.journal import as_time
from partitioning.sections import duration

_COLUMNS = ("pipeline", "outcome", "batch", "began", "last proved", "due", "lag when planned", "open batch", "file")


def listed(root: str) -> Answer:
    """Each pipeline with its newest attempt; the exit code is 3 if the file of one cannot be loaded."""
    store, (files, findings) = store_at(root), _files()
    found = rows_of(store, sorted({*files, *reported(store)}))
    ran = {row["pipeline"] for row in found}
    never: list[dict[str, Any]] = [
        {"pipeline": name, "newest": None, "proved": None} for name in files if name not in ran
    ]
    now = time.time_ns() // 1_000_000
    rows = [row | {"file": files.get(row["pipeline"])} | to_builtins(timeliness(row, now)) for row in [*found, *never]]
    none = f"{pipelines.none_of_project()}, and none has run in {root}"
    table = Table(f"Pipelines of {root}", _COLUMNS, map(_cells, rows), findings)
    return Answer(rows, [table] if rows else [none, *findings], exit_code=3 if findings else 0)


def _files() -> tuple[dict[str, str], list[str]]:
    """The files of the project's pipelines by their names, and what is wrong with those that fail."""
    files, findings = dict[str, str](), list[str]()
    for place, found in pipelines.of_project().items():
        if isinstance(found, Refused):
            findings += [f"{place}: {finding.what} ({finding.where})" for finding in found.findings]
        else:
            files[found.name] = place
    return files, findings


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    newest, proved, behind, waiting = row["newest"], row["proved"], row.get("lag"), row.get("open")
    return (
        row["pipeline"],
        state(newest) if newest else "never run",
        str(newest["batch"]) if newest else "",
        (newest.get("began") if newest else "") or "",
        f"batch {proved['batch']}, {proved.get('began') or '–'}" if proved else "",
        _due(row),
        f"{behind['lag_records']:,}, {duration(behind['lag_seconds'])}" if behind else "",
        f"{waiting['batch']}{', waits' if waiting['waits'] else ''}" if waiting else "",
        row["file"] or "not in this project",
    )


def _due(row: Mapping[str, Any]) -> str:
    """When the next publication is due, if a schedule says it, and whether it is late."""
    due = "" if row["due"] is None else as_time(row["due"])
    return " ".join(filter(None, ("✗ late" if row["late"] else "", due)))
