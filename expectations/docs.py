"""Data Docs: a page for each attempt of a batch, and an index, as HTML without network or scripts.

Great Expectations' renderers make the result tables. The index is kept in the store and grows with each batch,
whichever machine runs it; the local folder has the same index and the pages made here. The cost of adding a batch is
constant: beside the newest, each hundred batches have an index of their own.
"""

from __future__ import annotations

import copy
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import great_expectations as gx
import jinja2
import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2.nodes import EvalContext
from markupsafe import Markup

from expectations.plots import FIGURES, HEIGHT, WIDTH, plots
from partitioning.documents.document import canonical, digest
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, docs_unwritten
from partitioning.model.artefact import Role
from partitioning.model.backfill import Comparison, StateComparison, TableComparison
from partitioning.model.occasion import Effort, as_time
from partitioning.model.plan import Plan
from partitioning.texts import MOST_IN_A_CELL, MOST_IN_A_SENTENCE, visible

# The index lists this many of the newest batches, or up to twice as many.
_LISTED = 100


@dataclass(frozen=True, slots=True)
class Site:
    """Where Data Docs go: below `<pipeline>/` in a local folder, and below `<pipeline>/docs/` in the store."""

    folder: Path
    store: Store

    def write(self, pipeline: str, name: str, text: str) -> Path:
        """Writes a page into the folder. Raises Refused if that fails."""
        page = self.folder / pipeline / name
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(docs_unwritten(self.folder, error)) from error
        return page


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """One table that was judged, and how."""

    title: str
    answer: ExpectationSuiteValidationResult


@dataclass(frozen=True, slots=True)
class Page:
    """What the page of one attempt shows."""

    attempt: int
    success: bool
    summary: str
    records: int
    findings: Sequence[Finding]
    not_proved: Sequence[str]
    coverage: pd.DataFrame
    moved: pd.DataFrame
    sections: Sequence[JudgedTable]
    effort: Effort | None = None


def publish(site: Site, plan: Plan, page: Page) -> str:
    """Write the page and the index to the store and the folder. Returns the page's path in the folder."""
    name = f"batch-{plan.batch}-attempt-{page.attempt}.html"
    text = _page(plan, page)
    written = site.write(plan.pipeline, name, text)
    site.store.put(f"{plan.pipeline}/docs/{name}", text.encode())
    _publish_index(site, plan, page, name)
    return str(written)


def publish_comparison(site: Site, found: Comparison, hindrances: Sequence[Finding] = ()) -> str:
    """Write the page of a backfill's comparison, with the blockers of its swap, and the index. Returns the page's path
    in the folder."""
    name = f"backfill-{found.backfill}.html"
    sides: list[tuple[int, str, TableComparison | StateComparison]]
    sides = [(table.batch, table.table, table) for table in found.tables]
    sides += [(found.plans[-1][0], str(state), state) for state in found.states]
    text = _template("backfill.html").render(found=found, sides=sides, hindrances=hindrances, digest=digest(found))
    written = site.write(found.pipeline, name, text)
    prefix = f"{found.pipeline}/docs"
    site.store.put(f"{prefix}/{name}", text.encode())
    row = {"number": found.backfill, "summary": str(found), "same": found.same, "page": name}
    kept = {row["page"]: row for row in _kept(site, prefix, "backfills")} | {name: row}
    site.store.put(f"{prefix}/backfills.json", canonical(sorted(kept.values(), key=lambda each: -each["number"])))
    _put_index(site, found.pipeline)
    return str(written)


def _publish_index(site: Site, plan: Plan, page: Page, name: str) -> None:
    prefix = f"{plan.pipeline}/docs"
    row = {
        "batch": plan.batch,
        "attempt": page.attempt,
        "success": page.success,
        "summary": page.summary,
        "page": name,
        "began": as_time(page.effort.began) if page.effort else "",
        **_figures(page),
    }
    kept = {row["page"]: row for row in _kept(site, prefix, "index")} | {name: row}
    newest = max(row["batch"] for row in kept.values()) // _LISTED
    for hundred in sorted({row["batch"] // _LISTED for row in kept.values()} - {newest, newest - 1}):
        older = {page: row for page, row in kept.items() if row["batch"] // _LISTED == hundred}
        _put_older(site, plan.pipeline, hundred * _LISTED, older)
        kept = {page: row for page, row in kept.items() if page not in older}
    site.store.put(f"{prefix}/index.json", canonical(_newest_first(kept)))
    _put_index(site, plan.pipeline)


def _figures(page: Page) -> dict[str, float | None]:
    """The figures of an attempt that the index plots, by the names of `plots.FIGURES`."""
    effort, moved = page.effort, page.moved[page.moved["kind"] != Role.STATE.value]
    return {
        "records": page.records,
        "moved": int(moved["records"].sum()),
        "seconds": effort.seconds if effort else None,
        "cpu_seconds": effort.cpu_milliseconds / 1000 if effort and effort.cpu_milliseconds is not None else None,
    }


def _put_older(site: Site, pipeline: str, first: int, rows: dict[str, dict[str, Any]]) -> None:
    """Add these rows to the index of the hundred batches from `first` on, before they leave the newest one."""
    prefix, name = f"{pipeline}/docs", f"batches-{first}"
    kept = _newest_first({row["page"]: row for row in _kept(site, prefix, name)} | rows)
    site.store.put(f"{prefix}/{name}.json", canonical(kept))
    others = [{"which": "the newest batches", "page": "index.html"}]
    _put_list(site, pipeline, name, which=_which(first), rows=kept, others=others)


def _put_index(site: Site, pipeline: str) -> None:
    """Write the index of what the store lists, there and in the folder, which may not have all pages."""
    prefix = f"{pipeline}/docs"
    rows, backfills = _kept(site, prefix, "index"), _kept(site, prefix, "backfills")
    names = (re.search(r"/batches-([0-9]+)\.html$", entry.key) for entry in site.store.list(f"{prefix}/batches-"))
    firsts = sorted((int(name[1]) for name in names if name), reverse=True)
    others = [{"which": _which(first), "page": f"batches-{first}.html"} for first in firsts]
    _put_list(site, pipeline, "index", which="batches", rows=rows, others=others, backfills=backfills)


def _put_list(site: Site, pipeline: str, name: str, **shown: Any) -> None:
    prefix, folder, template = f"{pipeline}/docs", site.folder / pipeline, _template("index.html")
    shown |= {"pipeline": pipeline, "address": f"{site.store.root}/{prefix}"}
    shown |= {"figures": FIGURES, "plots": plots(shown["rows"]), "width": WIDTH, "height": HEIGHT}
    pages = {row["page"] for kind in ("rows", "others", "backfills") for row in shown.get(kind, ())}
    site.store.put(f"{prefix}/{name}.html", template.render(**shown, here=pages).encode())
    here = {page for page in pages if page == "index.html" or (folder / page).exists()}
    site.write(pipeline, f"{name}.html", template.render(**shown, here=here))


def _which(first: int) -> str:
    return f"batches {first} to {first + _LISTED - 1}"


def _kept(site: Site, prefix: str, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(site.store.get(f"{prefix}/{name}.json") or b"[]")
    return rows


def _newest_first(rows: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows.values(), key=lambda each: (-each["batch"], -each["attempt"]))


def _page(plan: Plan, page: Page) -> str:
    return _template("batch.html").render(
        plan=plan,
        page=page,
        digest=digest(plan),
        streams=_streams(page.coverage),
        coverage=list(page.coverage.itertuples(index=False)),
        moved=page.moved.astype(object).where(page.moved.notna(), None).to_dict("records"),
        documents=[(section, _rendered(section.answer)) for section in page.sections],
        gx_version=gx.__version__,
    )


@cache
def _template(name: str) -> jinja2.Template:
    env = DefaultJinjaPageView(custom_views_directory=str(Path(__file__).with_name("pages"))).env
    return env.overlay(finalize=_seen).get_template(name)


@jinja2.pass_eval_context
def _seen(where: EvalContext, value: Any) -> Any:
    """A value as a page shows it; Jinja then escapes it. What Great Expectations renders is HTML already and is not
    cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value, MOST_IN_A_SENTENCE if where.autoescape else len(value), lines=True)


def _rendered(answer: ExpectationSuiteValidationResult) -> list[dict[str, Any]]:
    """The sections that Great Expectations renders, except its overview, which links to its own site."""
    answer = copy.deepcopy(answer)
    for result in answer.results:
        # Its views do not escape values.
        result.result = _escaped(result.result)
    sections: list[dict[str, Any]] = ValidationResultsPageRenderer().render(answer).to_json_dict()["sections"][1:]
    for section in sections:
        if section["section_name"] == "Table-Level Expectations":
            section["content_blocks"] = [
                block for block in section["content_blocks"] if block["content_block_type"] != "header"
            ]
    return sections


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return html.escape(visible(value, MOST_IN_A_CELL, lines=True))
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(inner) for inner in value]
    return value


def _streams(coverage: pd.DataFrame) -> list[Any]:
    sums = ["planned", "taken", "dropped", "nulls", "keys"]
    grouped = coverage.groupby(["stage", "input", "table", "null_keys"], sort=False)
    return list(
        grouped.agg(partitions=("partition", "size"), **{figure: (figure, "sum") for figure in sums})
        .reset_index()
        .itertuples()
    )
