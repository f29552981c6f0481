"""The overview: all pipelines of a store on one page, those that failed first, then those that were quiet longest."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from coset.reports.site import Row, Site, outcome, state, style
from coset.reports.templates import template
from coset.reports.timeliness import ScheduledRun, after_run, timeliness
from partitioning.documents.document import canonical
from partitioning.documents.store import Store, at_once
from partitioning.model.figures import usual_from
from partitioning.model.journal import as_time
from partitioning.model.root_names import DOCS, INDEX
from partitioning.model.verdict import Outcome
from partitioning.sections import duration

_PREFIX = f"{DOCS}pipelines/"
# From so many intervals between publications on, what is usual is known.
_FEWEST = 3


def of_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """What the rows of a pipeline, newest first, say in the overview: its newest attempt, the newest that was proved,
    when something was published last and how often that happens, and how far behind it was."""
    at = [row["published"] for row in rows if "published" in row]
    apart = [(later - earlier) / 1000 for later, earlier in pairwise(at)][:30]
    usual = usual_from(apart)
    return {
        "newest": rows[0],
        "proved": next((row for row in rows if row["success"]), None),
        "published": at[0] if at else None,
        "every": statistics.median(apart) if len(apart) >= _FEWEST else None,
        "late_after": usual[1] if usual else None,
        "lag": next((row for row in rows if "lag_records" in row), None),
    }


def put_overview(site: Site, pipeline: str, news: Row) -> None:
    """Write what is new of a pipeline, and the page.

    Two pipelines may do this at once: the page of the later one may lack the other's news until the next.
    """
    mine = note(site.store, pipeline, news)
    others = [name for name in reported(site.store) if name != pipeline]
    rows = _sorted([mine, *_known(site.store, others)])
    site.store.put(f"{DOCS}{INDEX}", _page(site.store, rows, "../{}/docs/index.html".format).encode())
    here = {row["pipeline"]: "index.html" for row in rows if site.has(row["pipeline"], "index.html")}
    in_folder = {name: f"{name}/{page}" for name, page in here.items()}
    site.write(".", INDEX, _page(site.store, rows, in_folder.get))


def note(store: Store, pipeline: str, news: Row) -> Row:
    """Write what is new of a pipeline, and return all that is known; the page has it when it is written next."""
    key = f"{_PREFIX}{pipeline}.json"
    data = canonical({**json.loads(store.get(key) or b"{}"), **news, "pipeline": pipeline})
    store.put(key, data)
    known: Row = json.loads(data)
    return known


def note_run(store: Store, pipeline: str, run: ScheduledRun, up_to_date: int | None) -> None:
    """Write when a run of the pipeline began, and when the next does; `up_to_date` if it found nothing to do."""
    known = json.loads(store.get(f"{_PREFIX}{pipeline}.json") or b"{}")
    if news := after_run(known, run, up_to_date):
        note(store, pipeline, news)


def note_backfill(site: Site, pipeline: str, number: int, what: str | None) -> None:
    """Write what a backfill is at, nothing if it is at an end, and the page."""
    known = json.loads(site.store.get(f"{_PREFIX}{pipeline}.json") or b"{}").get("backfills", {})
    others = {name: said for name, said in known.items() if name != str(number)}
    put_overview(site, pipeline, {"backfills": others | ({str(number): what} if what else {})})


def overview_of(store: Store, pipelines: Iterable[str], link: Callable[[str], str]) -> str | None:
    """The page of these pipelines and no others, each with a link; None if none of them has a batch."""
    rows = rows_of(store, pipelines)
    return _page(store, rows, link) if rows else None


def reported(store: Store) -> list[str]:
    """The names of the pipelines that have an attempt in the store."""
    return [entry.key.removeprefix(_PREFIX).removesuffix(".json") for entry in store.list(_PREFIX)]


def rows_of(store: Store, pipelines: Iterable[str]) -> list[dict[str, Any]]:
    """What is known of those of these pipelines that have a batch: what is not proved first, then the oldest."""
    return _sorted(_known(store, pipelines))


def _known(store: Store, pipelines: Iterable[str]) -> list[Row | None]:
    keys = [f"{_PREFIX}{name}.json" for name in pipelines]
    return [json.loads(data or b"null") for data in at_once(store.get, keys)]


def _sorted(rows: Iterable[Row | None]) -> list[dict[str, Any]]:
    begun = (_begun(row) for row in rows if row and (row.get("newest") or row.get("open")))
    return sorted(begun, key=_worst_first)


def _begun(row: Row) -> dict[str, Any]:
    """What is known of a pipeline; of one without an attempt that was checked, by its first batch, which is open."""
    if row.get("newest"):
        return dict(row)
    first, what = row["open"], {"outcome": Outcome.UNRUN, "success": False, "summary": "its first batch is planned"}
    return {**row, "newest": {"batch": first["batch"], "attempt": 0, "page": "", "began": "", **what}, "proved": None}


def _page(store: Store, rows: list[dict[str, Any]], link: Callable[[str], str | None]) -> str:
    now = time.time_ns() // 1_000_000
    shown = [row | _published(row, now) for row in rows]
    return template("overview.html").render(
        rows=shown,
        address=store.root,
        outcome=outcome,
        state=state,
        style=style,
        link=link,
        written=as_time(now),
        duration=duration,
    )


def _published(row: Row, now: int) -> dict[str, Any]:
    """When a pipeline published last, how long ago that is, when it should publish next, and whether it is late."""
    time = timeliness(row, now)
    due = {"late": time.late, "due": as_time(time.due) if time.due is not None else ""}
    if row.get("published") is None:
        return {"at": None, **due}
    age = max(0, now - row["published"]) / 1000
    every = duration(row["every"]) if row.get("every") is not None else ""
    return {"at": as_time(row["published"]), "age": duration(age), "usually": every, **due}


def _worst_first(row: Row) -> tuple[bool, str, str]:
    waits = bool(row.get("open") and row["open"].get("waits"))
    settled = outcome(row["newest"]) in (Outcome.PROVED, Outcome.BACKFILLED) and not waits
    since = row["newest"].get("began") or (row.get("open") or {}).get("since") or ""
    return settled, since, row["pipeline"]
