"""The catalogue: all pipelines of the working folder and of the store, with their newest attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coset.cli import pipelines
from coset.cli.output import show, show_json, show_table
from coset.reports.overview import reported, rows_of
from coset.reports.site import outcome
from partitioning.documents.stores import store_at
from partitioning.errors import Refused

_COLUMNS = ("pipeline", "outcome", "batch", "began", "last proved", "file")


def show_pipelines(root: str, *, as_json: bool) -> int:
    """Print each pipeline with its newest attempt; 3 if the file of one cannot be loaded, else 0."""
    store, (files, findings) = store_at(root), _files()
    found = rows_of(store, sorted({*files, *reported(store)}))
    ran = {row["pipeline"] for row in found}
    never: list[dict[str, Any]] = [
        {"pipeline": name, "newest": None, "proved": None} for name in files if name not in ran
    ]
    rows = [row | {"file": files.get(row["pipeline"])} for row in [*found, *never]]
    if as_json:
        show_json(rows)
    elif rows:
        show_table(f"Pipelines of {root}", _COLUMNS, map(_cells, rows), findings)
    else:
        show(f"No pipeline is in {pipelines.FOLDER} of this folder, and none has run in {root}", *findings)
    return 3 if findings else 0


def _files() -> tuple[dict[str, str], list[str]]:
    """The files of the pipelines in the working folder by their names, and what is wrong with those that fail."""
    files, findings = dict[str, str](), list[str]()
    for path in map(str, sorted(pipelines.FOLDER.glob("[!_]*.py"))):
        try:
            files[pipelines.load(path).name] = path
        except Refused as refusal:
            findings += [f"{path}: {finding.what} ({finding.where})" for finding in refusal.findings]
    return files, findings


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    newest, proved = row["newest"], row["proved"]
    return (
        row["pipeline"],
        outcome(newest).shown if newest else "never run",
        str(newest["batch"]) if newest else "–",
        (newest.get("began") if newest else "") or "–",
        f"batch {proved['batch']}, {proved.get('began') or '–'}" if proved else "–",
        row["file"] or "not in this folder",
    )
