"""The history of a pipeline: an index of its batches with plots, and one for each hundred earlier batches.

The rows are kept in the store and grow with each batch, whichever machine runs it. The local folder has the same pages
and links to those made here. The cost of one more batch does not grow with the batches before.

A page of an attempt is made once. What becomes of the attempt later is said in two sections, which are made anew from
its row.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from msgspec import convert

from coset.reports.next_steps import shown
from coset.reports.overview import note, of_rows, put_overview
from coset.reports.plots import DRAWN, HEIGHT, WIDTH, cells, marks, plots, unusual
from coset.reports.site import AIRFLOW, Row, Site, listed, outcome, state, style
from coset.reports.templates import template
from partitioning.commands import Run, Undo
from partitioning.documents.document import canonical
from partitioning.documents.store import Store
from partitioning.explain.watermarks import event_time
from partitioning.model.backfill import pipeline_of
from partitioning.model.figures import BEFORE
from partitioning.model.journal import as_time
from partitioning.model.table_parts import Upkeep
from partitioning.model.verdict import WARNED, Commit, Outcome

# A list has the batches of a hundred. The index has as many of the newest as are drawn, and what comes before them of
# a hundred.
_LISTED = 100
_HUNDREDS = DRAWN // _LISTED + 1
# What the two copies of a page differ in.
_NAV = "<nav></nav>"
# What is made anew of an attempt's page: by which template, and where it stands.
_ANEW = {name: re.compile(rf'<section id="{name}".*?</section>', re.DOTALL) for name in ("now", "facts")}


def add(site: Site, pipeline: str, row: Row, before: Iterable[Row] | None = None, *, pages: bool = True) -> None:
    """Add an attempt's row to the index, in place of an earlier one of the same attempt. `before` are its rows, if they
    were read. Without `pages` the page of the index and the overview are left to `published`."""
    known = list(listed(site.store, pipeline, "index") if before is None else before)
    # Verified tables stay known, though a batch comes.
    held = next((each["verified"] for each in known if "verified" in each), None)
    rows = _by_attempt([*known, {**row, "verified": held} if held and row["success"] else row])
    # The batches before the first drawn one tell what is usual there.
    newest = max(0, max(batch for batch, _ in rows) - BEFORE) // _LISTED
    for hundred in sorted({batch // _LISTED for batch, _ in rows if batch // _LISTED <= newest - _HUNDREDS}):
        older = [each for (batch, _), each in rows.items() if batch // _LISTED == hundred]
        name = _older(hundred)
        kept = _by_attempt([*listed(site.store, pipeline, name), *older])
        _put(site, pipeline, name, _newest_first(kept))
        rows = {which: each for which, each in rows.items() if which[0] // _LISTED != hundred}
    newest_first = _newest_first(rows)
    if pages:
        _put(site, pipeline, "index", newest_first)
    else:
        _put_rows(site, pipeline, "index", newest_first)


def give_up(site: Site, pipeline: str, batch: int, attempt: int, why: str, when: str) -> None:
    """Mark a batch in the index as given up, with the reason. Other folders show it after the next attempt there."""
    what = {"outcome": Outcome.GIVEN_UP, "success": False, "summary": why, "page": "", "began": when}
    add(site, pipeline, {"batch": batch, "attempt": attempt, **what})


def published(site: Site, pipeline: str, attempt: int, commit: Commit, more: Row, news: Row | None = None) -> None:
    """Say what was published, and the figures of that; in the overview also the `news` of the pipeline."""
    versions = {table.table: table.version for table in commit.tables}

    def with_versions(row: Row) -> Row:
        is_it = (row["batch"], row["attempt"]) == (commit.batch, attempt)
        return {**row, **more, "versions": versions} if is_it else row

    if not _restate(site, pipeline, {commit.batch}, with_versions, news=news) and news:
        note(site.store, pipeline, news)


def compare(site: Site, pipeline: str, row: Row, batches: Iterable[int]) -> None:
    """Add a backfill of these batches to the index, in place of an earlier row of the same backfill."""
    kept = {each["page"]: each for each in [*listed(site.store, pipeline, "backfills"), row]}
    rows = sorted(kept.values(), key=lambda each: -int(each["number"]))
    site.store.put(f"{pipeline}/docs/backfills.json", canonical(rows))
    again = set(batches)

    def with_backfill(of_batch: Row) -> Row:
        if of_batch["batch"] not in again:
            return of_batch
        return {**of_batch, "backfills": {**of_batch.get("backfills", {}), str(row["number"]): row["summary"]}}

    _restate(site, pipeline, again, with_backfill, always=True)


def exchange(site: Site, pipeline: str, batches: Iterable[int], exchanged: Mapping[int, str]) -> None:
    """Mark in the index which of these batches have a backfill's rows: those that are `exchanged`, with the backfill's
    name. Other folders show it after the next attempt there."""

    def with_outcome(row: Row) -> Row:
        of = {**row, "outcome": _exchanged(row, exchanged)}
        now = exchanged.get(row["batch"]) if row["success"] else None
        return {name: value for name, value in of.items() if name != "instead"} | ({"instead": now} if now else {})

    _restate(site, pipeline, set(batches), with_outcome)


def verified(site: Site, pipeline: str, batch: int, tables: Row) -> None:
    """Say of the batch that is published, on its page and in the index, how much of the tables is verified."""

    def with_tables(row: Row) -> Row:
        return {**row, "verified": dict(tables)} if row["batch"] == batch and row["success"] else row

    _restate(site, pipeline, {batch}, with_tables)


def rows_since(store: Store, pipeline: str, when: str) -> list[dict[str, Any]]:
    """The rows of attempts that began at `when` or later, newest first. `when` is text as `as_time` writes it."""
    rows = listed(store, pipeline, "index")
    for hundred in _hundreds(store, pipeline):
        if rows and rows[-1].get("began", "") < when:
            break
        rows += listed(store, pipeline, _older(hundred))
    return [row for row in rows if row.get("began", "") >= when]


def page_of(store: Store, pipeline: str, rows: list[dict[str, Any]], which: str) -> str:
    """A page of these rows without links."""
    return _Page(store, pipeline, {"which": which, "rows": rows}).text(frozenset(), "")


def since(rows: Iterable[Row], row: Row) -> Iterator[str]:
    """Sentences on an attempt by the rows before it, newest first: since when attempts fail, and what is unusual."""
    before = [each for each in rows if (each["batch"], each["attempt"]) < (row["batch"], row["attempt"])]
    failing = 0
    while failing < len(before) and not before[failing]["success"]:
        failing += 1
    proved = before[failing] if failing < len(before) else None
    if not row["success"] and failing:
        first = before[failing - 1].get("began")
        yield f"This is failure {failing + 1} in a row" + (f"; the first attempt began {first}." if first else ".")
    if not row["success"] and proved:
        at = f", {proved['began']}" if proved.get("began") else ""
        yield f"The last batch that was proved is batch {proved['batch']}{at}."
    yield from unusual([each for each in reversed(before) if each["success"]], row)


def made_anew(row: Row, pipeline: str) -> dict[str, str]:
    """The sections of an attempt's page that are made anew: its outcome and what to do, `now`, and its time and place,
    `facts`. The run of Airflow's is a link if the environment says where Airflow is."""
    base_url = os.environ.get(AIRFLOW, "").rstrip("/")
    facts = {
        "row": row,
        "pipeline": pipeline,
        "outcome": outcome(row),
        "state": state(row),
        "style": style(row),
        "base_url": base_url,
        "as_time": as_time,
        "upkeep": _upkeep(row),
    }
    steps = {"says": shown().says, "run": Run(pipeline), "undo": Undo}
    return {name: template(f"{name}.html").render(facts, **steps) for name in _ANEW}


def _restate(
    site: Site,
    pipeline: str,
    batches: Set[int],
    change: Callable[[Row], Row],
    *,
    always: bool = False,
    news: Row | None = None,
) -> bool:
    """Change the rows of these batches, in the lists that have them and on their pages; the index `always`. Returns
    whether the index was written, and with it the overview, which has the `news` too."""
    newest, written = listed(site.store, pipeline, "index"), False
    older = sorted({batch // _LISTED for batch in batches - {row["batch"] for row in newest}})
    for name in ("index", *map(_older, older)):
        rows = newest if name == "index" else listed(site.store, pipeline, name)
        changed = [dict(change(row)) for row in rows]
        for before, row in zip(rows, changed, strict=True):
            if row != before and row["page"]:
                _restate_page(site, pipeline, row)
        if changed != rows or (always and name == "index"):
            _put(site, pipeline, name, changed, news)
            written |= name == "index"
    return written


def _restate_page(site: Site, pipeline: str, row: Row) -> None:
    key = f"{pipeline}/docs/{row['page']}"
    page = (site.store.get(key) or b"").decode()
    again = page
    for name, section in made_anew(row, pipeline).items():
        again = _ANEW[name].sub(lambda _, section=section: section, again, count=1)  # type: ignore[misc]
    if again != page:
        site.store.put(key, again.encode())
        if site.has(pipeline, row["page"]):
            site.write(pipeline, row["page"], again)


def _exchanged(row: Row, now: Mapping[int, str]) -> Outcome:
    if row["batch"] in now:
        return Outcome.BACKFILLED if row["success"] else outcome(row)
    return Outcome.PROVED if outcome(row) is Outcome.BACKFILLED else outcome(row)


def _put_rows(site: Site, pipeline: str, name: str, rows: list[dict[str, Any]]) -> None:
    site.store.put(f"{pipeline}/docs/{name}.json", canonical(rows))


def _put(site: Site, pipeline: str, name: str, rows: list[dict[str, Any]], news: Row | None = None) -> None:
    """Write a list's rows and its page to the store and to the local folder, which may not have all pages; with the
    index also the overview."""
    prefix, newest = f"{pipeline}/docs", name == "index"
    _put_rows(site, pipeline, name, rows)
    shown: dict[str, Any] = {"which": "batches" if newest else _which(name), "rows": rows}
    if newest:
        # The lists of earlier batches begin where the index ends.
        all_there = any(row["batch"] == 0 for row in rows)
        older = [] if all_there else [_older(hundred) for hundred in _hundreds(site.store, pipeline)]
        shown["others"] = [{"which": _which(each), "page": f"{each}.html"} for each in older]
        shown["backfills"] = listed(site.store, pipeline, "backfills")
    else:
        shown["others"] = [{"which": "the newest batches", "page": "index.html"}]
    pages = {row["page"] for kind in ("rows", "others", "backfills") for row in shown.get(kind, ())} - {""}
    live = pipeline_of(pipeline) is None
    page = _Page(site.store, pipeline, shown)
    site.store.put(f"{prefix}/{name}.html", page.text(pages, "../../docs/index.html" if live else "").encode())
    if site.folder is not None:
        here = {each for each in pages if each == "index.html" or site.has(pipeline, each)}
        site.write(pipeline, f"{name}.html", page.text(here, "../index.html" if live else ""))
    if newest and rows and live:
        put_overview(site, pipeline, {**of_rows(rows), **(news or {})})


class _Page:
    """The page of a list, whose plots are made once."""

    def __init__(self, store: Store, pipeline: str, shown: Row) -> None:
        foremost, others = plots(shown["rows"])
        self._shown = {
            **shown,
            "foremost": foremost,
            "others_drawn": others,
            "stands": (stands := _stands(shown["rows"])),
            "upkeep": _upkeep(stands["row"]) if stands else (),
            "size": (WIDTH, HEIGHT),
            "counts": list(_counts(shown["rows"])),
            "pipeline": pipeline,
            "address": f"{store.root}/{pipeline}/docs",
            "state": state,
            "style": style,
            "event_time": event_time,
            "marks": marks,
            "cells": cells,
        }
        self._made: dict[frozenset[str], str] = {}

    def text(self, here: Set[str], up: str) -> str:
        """The page, with links to the pages that are `here` and to all pipelines."""
        known = frozenset(here)
        if known not in self._made:
            self._made[known] = template("index.html").render(**self._shown, here=here)
        nav = f'<nav><a href="{up}">All pipelines</a></nav>' if up else ""
        return self._made[known].replace(_NAV, nav, 1)


def _counts(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """How many attempts became what, for people, each with the name of its colour; those with warnings apart."""
    counts = Counter((outcome(row), style(row)) for row in rows)
    for each in Outcome:
        if count := counts[each, each.name.lower()]:
            yield each.name.lower(), f"{each.sign} {count:,} {each}"
        if count := counts[each, "warned"]:
            yield "warned", f"{WARNED} {count:,} {each} with warnings"


def _stands(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Where a pipeline stands after the newest batch that is published: the rows of its tables, how far they are there,
    and what was set aside; None if rows do not say that."""
    newest = next((row for row in rows if "stands" in row), None)
    if newest is None:
        return None
    aside = [row.get("set_aside") or 0 for row in rows if row["success"]]
    return {**newest["stands"], "row": newest, "aside": newest.get("set_aside") or 0, "all_aside": sum(aside)}


def _upkeep(row: Row) -> list[str]:
    """How near tables were to having partitions written again when an attempt was published, in words."""
    return [str(convert(each, Upkeep)) for each in row.get("stands", {}).get("upkeep", ())]


def _older(hundred: int) -> str:
    return f"batches-{hundred * _LISTED}"


def _which(name: str) -> str:
    first = int(name.removeprefix("batches-"))
    return f"batches {first} to {first + _LISTED - 1}"


def _hundreds(store: Store, pipeline: str) -> list[int]:
    """The hundreds of batches that have lists of their own, the newest first."""
    names = (re.search(r"/batches-([0-9]+)\.json$", entry.key) for entry in store.list(f"{pipeline}/docs/batches-"))
    return sorted((int(name[1]) // _LISTED for name in names if name), reverse=True)


def _by_attempt(rows: Iterable[Row]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["batch"], row["attempt"]): dict(row) for row in rows}


def _newest_first(rows: Mapping[tuple[int, int], dict[str, Any]]) -> list[dict[str, Any]]:
    return [rows[which] for which in sorted(rows, reverse=True)]
