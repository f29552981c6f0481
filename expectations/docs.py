"""Data Docs: a page for each attempt of a batch and an index of all, as HTML that needs no network and no script.

Great Expectations' own renderers make the tables of results. The index is kept in the store and grows with
each batch, whatever machine runs it; the local folder holds the same index and the pages made here.
"""

from __future__ import annotations

import copy
import html
import json
from collections.abc import Sequence
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

from partitioning.documents.document import canonical, digest
from partitioning.documents.store import Store
from partitioning.errors import Finding
from partitioning.model.plan import Plan


@dataclass(frozen=True, slots=True)
class Site:
    """Where Data Docs go: below `<pipeline>/` in a local folder, and below `<pipeline>/docs/` in the store."""

    folder: Path
    store: Store


@dataclass(frozen=True, slots=True)
class Section:
    """One table that was judged, and how."""

    title: str
    answer: ExpectationSuiteValidationResult


@dataclass(frozen=True, slots=True)
class Page:
    """What the page of one attempt shows."""

    attempt: int
    success: bool
    summary: str
    findings: Sequence[Finding]
    coverage: pd.DataFrame
    moved: pd.DataFrame
    sections: Sequence[Section]


def publish(site: Site, plan: Plan, page: Page) -> str:
    """Write the page and the index to the store and the folder; the answer is the page's path in the folder."""
    name = f"batch-{plan.batch}-attempt-{page.attempt}.html"
    folder = site.folder / plan.pipeline
    folder.mkdir(parents=True, exist_ok=True)
    text = _page(plan, page)
    (folder / name).write_text(text)
    site.store.put(f"{plan.pipeline}/docs/{name}", text.encode())
    _publish_index(site, plan, page, name)
    return str(folder / name)


def _publish_index(site: Site, plan: Plan, page: Page, name: str) -> None:
    prefix = f"{plan.pipeline}/docs"
    row = {
        "batch": plan.batch,
        "attempt": page.attempt,
        "success": page.success,
        "summary": page.summary,
        "page": name,
    }
    kept = {row["page"]: row for row in json.loads(site.store.get(f"{prefix}/index.json") or b"[]")} | {name: row}
    rows = sorted(kept.values(), key=lambda each: (-each["batch"], -each["attempt"]))
    folder = site.folder / plan.pipeline
    here = {row["page"] for row in rows if (folder / row["page"]).exists()}
    address = f"{site.store.root}/{prefix}"
    site.store.put(f"{prefix}/index.json", canonical(rows))
    site.store.put(f"{prefix}/index.html", _index(plan.pipeline, rows, set(kept), address).encode())
    (folder / "index.html").write_text(_index(plan.pipeline, rows, here, address))


def _index(pipeline: str, rows: Sequence[dict[str, Any]], here: set[str], address: str) -> str:
    return _template("index.html").render(pipeline=pipeline, rows=rows, here=here, address=address)


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
    return DefaultJinjaPageView(custom_views_directory=str(Path(__file__).with_name("pages"))).env.get_template(name)


def _rendered(answer: ExpectationSuiteValidationResult) -> list[dict[str, Any]]:
    """The sections that Great Expectations renders, but for its overview, whose links lead to its own site."""
    answer = copy.deepcopy(answer)
    for result in answer.results:
        # Its views put values of the data into the page as they are.
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
        return html.escape(value)
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
