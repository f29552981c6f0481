"""The history of a pipeline: an index of its batches with plots, and one for each hundred earlier batches.

The rows are kept in the store and grow with each batch, whichever machine runs it. The local folder has the same pages
and links to those made here. What is read and written for one more batch does not grow with the batches before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coset.reports.overview import put_overview
from coset.reports.plots import FIGURES, HEIGHT, WIDTH, plots, unusual
from coset.reports.site import Site, listed, outcome
from coset.reports.templates import template
from partitioning.documents.document import canonical
from partitioning.documents.store import Store
from partitioning.model.backfill import pipeline_of
from partitioning.model.outcome import Outcome

# The index lists this many of the newest batches, or up to twice as many.
_LISTED = 100

Row = Mapping[str, Any]


def add(site: Site, pipeline: str, row: Row) -> None:
    """Add an attempt's row to the index, in place of an earlier one of the same attempt."""
    rows = _by_attempt([*listed(site.store, pipeline, "index"), row])
    newest = max(batch for batch, _ in rows) // _LISTED
    for hundred in sorted({batch // _LISTED for batch, _ in rows} - {newest, newest - 1}):
        older = [each for (batch, _), each in rows.items() if batch // _LISTED == hundred]
        name = _older(hundred)
        kept = _by_attempt([*listed(site.store, pipeline, name), *older])
        _put(site, pipeline, name, _newest_first(kept))
        rows = {which: each for which, each in rows.items() if which[0] // _LISTED != hundred}
    _put(site, pipeline, "index", _newest_first(rows))


def give_up(store: Store, pipeline: str, batch: int, attempt: int, why: str, when: str) -> None:
    """Say in the store's index that somebody gave a batch up, and why. Folders say so after the next attempt."""
    what = {"outcome": Outcome.GIVEN_UP, "success": False, "summary": why, "page": "", "began": when}
    add(Site(None, store), pipeline, {"batch": batch, "attempt": attempt, **what})


def compare(site: Site, pipeline: str, row: Row) -> None:
    """Add a backfill's row to the index, in place of an earlier one of the same backfill."""
    kept = {each["page"]: each for each in [*listed(site.store, pipeline, "backfills"), row]}
    rows = sorted(kept.values(), key=lambda each: -int(each["number"]))
    site.store.put(f"{pipeline}/docs/backfills.json", canonical(rows))
    _put(site, pipeline, "index", listed(site.store, pipeline, "index"))


def exchange(store: Store, pipeline: str, batches: Iterable[int], exchanged: Iterable[int]) -> None:
    """Say in the store's index which of these batches have a backfill's rows in the place of their own: those that are
    `exchanged`. Folders say so after the next attempt."""
    now = set(exchanged)
    for name in ("index", *(_older(hundred) for hundred in sorted({batch // _LISTED for batch in batches}))):
        rows = listed(store, pipeline, name)
        again = [row | {"outcome": _exchanged(row, now)} for row in rows]
        if again != [row | {"outcome": outcome(row)} for row in rows]:
            _put(Site(None, store), pipeline, name, again)


def rows_since(store: Store, pipeline: str, when: str) -> list[dict[str, Any]]:
    """The rows of attempts that began then or later, newest first. A time is text as `as_time` has it."""
    rows = listed(store, pipeline, "index")
    for hundred in _hundreds(store, pipeline):
        if rows and rows[-1].get("began", "") < when:
            break
        rows += listed(store, pipeline, _older(hundred))
    return [row for row in rows if row.get("began", "") >= when]


def page_of(store: Store, pipeline: str, rows: list[dict[str, Any]], which: str) -> str:
    """A page of these rows that stands alone: it links nowhere."""
    return _rendered(store, pipeline, {"which": which, "rows": rows, "here": (), "up": ""})


def since(rows: Iterable[Row], row: Row) -> Iterator[str]:
    """What the rows before, newest first, say about an attempt: since when attempts fail, and what is unusual."""
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


def _exchanged(row: Row, now: set[int]) -> Outcome:
    if row["batch"] in now:
        return Outcome.BACKFILLED if row["success"] else outcome(row)
    return Outcome.PROVED if outcome(row) is Outcome.BACKFILLED else outcome(row)


def _put(site: Site, pipeline: str, name: str, rows: list[dict[str, Any]]) -> None:
    """Write a list's rows and its page, to the store and to the folder, which may not have all pages."""
    prefix, newest = f"{pipeline}/docs", name == "index"
    site.store.put(f"{prefix}/{name}.json", canonical(rows))
    shown: dict[str, Any] = {"which": "batches" if newest else _which(name), "rows": rows}
    if newest:
        older = [_older(hundred) for hundred in _hundreds(site.store, pipeline)]
        shown["others"] = [{"which": _which(each), "page": f"{each}.html"} for each in older]
        shown["backfills"] = listed(site.store, pipeline, "backfills")
    else:
        shown["others"] = [{"which": "the newest batches", "page": "index.html"}]
    pages = {row["page"] for kind in ("rows", "others", "backfills") for row in shown.get(kind, ())} - {""}
    live = pipeline_of(pipeline) is None
    in_store = {"here": pages, "up": "../../docs/index.html" if live else ""}
    site.store.put(f"{prefix}/{name}.html", _rendered(site.store, pipeline, shown | in_store).encode())
    here = {page for page in pages if page == "index.html" or site.has(pipeline, page)}
    site.write(
        pipeline,
        f"{name}.html",
        _rendered(site.store, pipeline, shown | {"here": here, "up": "../index.html" if live else ""}),
    )
    if newest and rows and live:
        put_overview(site, pipeline, rows[0], next((row for row in rows if row["success"]), None))


def _rendered(store: Store, pipeline: str, shown: Row) -> str:
    drawn = {"figures": _known(shown["rows"]), "plots": plots(shown["rows"]), "width": WIDTH, "height": HEIGHT}
    address = f"{store.root}/{pipeline}/docs"
    return template("index.html").render(**shown, **drawn, pipeline=pipeline, address=address, outcome=outcome)


def _known(rows: list[dict[str, Any]]) -> list[Any]:
    """The figures that some row has, apart from those that are 0 in all."""
    return [figure for figure in FIGURES if any(row.get(figure.name) for row in rows)]


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
