"""Reports over a time, and pages to send: the history of a pipeline's last days, and the page of a batch as a file."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from coset.batches.attempt import Attempt
from coset.cli import pipelines
from coset.cli.machine import writing
from coset.cli.output import Answer, Table
from coset.reports.batch_index import page_of, rows_since
from coset.reports.figure_list import FIGURES
from coset.reports.site import state
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.journal import as_time
from partitioning.model.plan import Plan

_UNITS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_SHOWN = ("records", "seconds", "cpu_seconds", "moved", "rows")


def since(named: str, root: str, ago: str, html: Path | None) -> Answer:
    """The attempts that began in the last hours, days or weeks (12h, 7d, 2w); also as a page, if a file is named."""
    store, pipeline = store_at(root), pipelines.load(named).name
    when = _when(ago)
    rows = rows_since(store, pipeline, when)
    # A later reader does not know of what day it is.
    written = [] if html is None else [_write(html, page_of(store, pipeline, rows, f"since {when}"))]
    figures = [figure for figure in FIGURES if figure.name in _SHOWN]
    columns = ("batch", "attempt", "began", "outcome", *(figure.title.lower() for figure in figures))
    cells = [_cells(row, [figure.text(row) for figure in figures]) for row in rows]
    proved = sum(row["success"] for row in rows)
    title = f"{pipeline}: {len(rows):,} attempts in the last {ago}, {proved:,} proved"
    none = f"No attempt of {pipeline} was checked in the last {ago}."
    return Answer(rows, [*written, Table(title, columns, cells, empty=none)])


def save_page(ledger: Ledger, plan: Plan, html: Path) -> str:
    """Write the page of a batch's last attempt that was checked to a file that stands alone.

    Raises Refused if none was checked, or if the file cannot be written.
    """
    page = _page(ledger, plan)
    if page is None:
        what, then = f"batch {plan.batch} is not checked yet, so it has no page", Run(ledger.pipeline)
        raise Refused.of(Kind.BATCH_UNRUN, what, f"pipeline {ledger.pipeline!r}", then, batch=plan.batch)
    # It leads to pages that are not sent with it.
    return _write(html, re.sub("<nav>.*?</nav>", "", page.decode(), count=1, flags=re.DOTALL))


def _page(ledger: Ledger, plan: Plan) -> bytes | None:
    published = Attempt.published(ledger, plan)
    number = ledger.attempt(plan.batch) - 1 if published is None else published.number
    return ledger.store.get(f"{ledger.pipeline}/docs/batch-{plan.batch}-attempt-{number}.html") if number >= 0 else None


def _cells(row: dict[str, Any], figures: list[str]) -> list[str]:
    return [str(row["batch"]), str(row["attempt"]), row.get("began") or "–", state(row), *figures]


def _when(ago: str) -> str:
    found = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", ago)
    if found is None:
        what, then = f"{ago!r} is no time to look back", "use hours, days or weeks: 12h, 7d, 2w"
        raise Refused.of(Kind.ARGUMENT, what, "--since", then, since=ago)
    return as_time(int((time.time() - int(found[1]) * _UNITS[found[2]]) * 1000))


def _write(html: Path, page: str) -> str:
    with writing(html, "the page"):
        html.write_text(page, encoding="utf-8")
    return f"Written: {html}"
