"""The overview: all pipelines of a store on one page, those that failed first, then those that were quiet longest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coset.reports.site import Site, outcome
from coset.reports.templates import template
from partitioning.documents.document import canonical
from partitioning.model.outcome import Outcome

_PREFIX = "docs/pipelines/"


def put_overview(site: Site, pipeline: str, newest: Mapping[str, Any], proved: Mapping[str, Any] | None) -> None:
    """Write the page after a pipeline's newest attempt; `proved` is the newest that was.

    Two pipelines may do this at once: the page of the later one may lack the other's newest attempt until the next.
    """
    site.store.put(f"{_PREFIX}{pipeline}.json", canonical({"pipeline": pipeline, "newest": newest, "proved": proved}))
    rows = [json.loads(site.store.get(entry.key) or b"null") for entry in site.store.list(_PREFIX)]
    rows = sorted(filter(None, rows), key=_worst_first)
    shown = {"rows": rows, "address": site.store.root, "outcome": outcome}
    site.store.put("docs/index.html", template("overview.html").render(**shown, link=_in_store).encode())
    here = {row["pipeline"]: "index.html" for row in rows if site.has(row["pipeline"], "index.html")}
    in_folder = {name: f"{name}/{page}" for name, page in here.items()}
    site.write(".", "index.html", template("overview.html").render(**shown, link=in_folder.get))


def _in_store(pipeline: str) -> str:
    return f"../{pipeline}/docs/index.html"


def _worst_first(row: Mapping[str, Any]) -> tuple[bool, str, str]:
    settled = outcome(row["newest"]) in (Outcome.PROVED, Outcome.BACKFILLED)
    return settled, row["newest"].get("began") or "", row["pipeline"]
