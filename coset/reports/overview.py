"""The overview: all pipelines of a store on one page, those that failed first, then those that were quiet longest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coset.reports.site import Site, outcome
from coset.reports.templates import template
from partitioning.documents.document import canonical
from partitioning.documents.store import Store
from partitioning.model.outcome import Outcome

_PREFIX = "docs/pipelines/"


def put_overview(site: Site, pipeline: str, newest: Mapping[str, Any], proved: Mapping[str, Any] | None) -> None:
    """Write the page after a pipeline's newest attempt; `proved` is the newest that was.

    Two pipelines may do this at once: the page of the later one may lack the other's newest attempt until the next.
    """
    site.store.put(f"{_PREFIX}{pipeline}.json", canonical({"pipeline": pipeline, "newest": newest, "proved": proved}))
    rows = rows_of(site.store, reported(site.store))
    site.store.put("docs/index.html", _page(site.store, rows, _in_store).encode())
    here = {row["pipeline"]: "index.html" for row in rows if site.has(row["pipeline"], "index.html")}
    in_folder = {name: f"{name}/{page}" for name, page in here.items()}
    site.write(".", "index.html", _page(site.store, rows, in_folder.get))


def overview_of(store: Store, pipelines: Iterable[str], link: Callable[[str], str]) -> str | None:
    """The page of these pipelines and no others, each with a link; None if none of them has an attempt."""
    rows = rows_of(store, pipelines)
    return _page(store, rows, link) if rows else None


def reported(store: Store) -> list[str]:
    """The names of the pipelines that have an attempt in the store."""
    return [entry.key.removeprefix(_PREFIX).removesuffix(".json") for entry in store.list(_PREFIX)]


def rows_of(store: Store, pipelines: Iterable[str]) -> list[dict[str, Any]]:
    """The newest attempts of those of these pipelines that have one: what is not proved first, then the oldest."""
    rows = [json.loads(store.get(f"{_PREFIX}{name}.json") or b"null") for name in pipelines]
    return sorted(filter(None, rows), key=_worst_first)


def _page(store: Store, rows: list[dict[str, Any]], link: Callable[[str], str | None]) -> str:
    return template("overview.html").render(rows=rows, address=store.root, outcome=outcome, link=link)


def _in_store(pipeline: str) -> str:
    return f"../{pipeline}/docs/index.html"


def _worst_first(row: Mapping[str, Any]) -> tuple[bool, str, str]:
    settled = outcome(row["newest"]) in (Outcome.PROVED, Outcome.BACKFILLED)
    return settled, row["newest"].get("began") or "", row["pipeline"]
