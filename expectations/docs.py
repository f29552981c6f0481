"""Data Docs: a page for each attempt of a batch, as HTML without network or scripts, and its line in the history.

Great Expectations' renderers make the result tables.
"""

from __future__ import annotations

import copy
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import great_expectations as gx
import jinja2
import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from markupsafe import Markup
from msgspec import to_builtins

from coset.reports import batch_index
from coset.reports.next_steps import shown
from coset.reports.site import Row, Site, beside_expected, listed, of_parts, pace_of
from coset.reports.templates import GLOBALS, PAGES, seen
from partitioning.diff.table_changes import kept_sentences
from partitioning.documents.document import digest
from partitioning.errors import Finding
from partitioning.model.backfill import pipeline_of
from partitioning.model.figures import effort_of, figures_of, read_by_group
from partitioning.model.journal import Effort, JournalEntry, as_time
from partitioning.model.measures import FigureForm, Measure
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt, Role, shortages
from partitioning.model.statistics import statistics_of
from partitioning.model.verdict import outcome_of_check
from partitioning.pictures.drawing import drawing
from partitioning.pictures.svg import svg
from partitioning.sections import size
from partitioning.texts import MOST_IN_A_CELL, environment, visible

_TASKS_SHOWN = 20
_KEYS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """One table that was judged, and how."""

    title: str
    answer: ExpectationSuiteValidationResult


@dataclass(frozen=True, slots=True)
class Page:
    """What the page of one attempt shows. Without the receipts of its task groups it has no figures of theirs; `done`
    has those parts of it that were done before, `figures` what expectations measured."""

    attempt: int
    success: bool
    summary: str
    records: int
    findings: Sequence[Finding]
    not_proved: Sequence[str]
    coverage: pd.DataFrame
    moved: pd.DataFrame
    sections: Sequence[JudgedTable]
    keys: int = 0
    receipts: Sequence[Receipt] = ()
    warnings: Sequence[Finding] = ()
    done: Sequence[JournalEntry] = ()
    figures: Sequence[Mapping[str, Any]] = ()


def publish(site: Site, plan: Plan, page: Page) -> str:
    """Write the page and the index to the store and the folder. Returns the page's path in the folder."""
    file, effort = f"batch-{plan.batch}-attempt-{page.attempt}.html", effort_of(plan, page.receipts)
    rows = listed(site.store, plan.pipeline, "index")
    before = [each for each in rows if (each["batch"], each["attempt"]) < (plan.batch, page.attempt)]
    pace = pace_of(before)
    row = {
        "batch": plan.batch,
        "attempt": page.attempt,
        "success": page.success,
        "outcome": outcome_of_check(page.findings),
        "summary": page.summary,
        "page": file,
        "began": as_time(effort.began) if effort else "",
        "next": list(dict.fromkeys(shown().says(finding.next) for finding in page.findings)),
        **({"environment": name} if (name := environment()) else {}),
        **_figures(plan, page, effort),
        **beside_expected(pace, _worked(page.receipts) if effort else None, sum(group.bytes for group in plan.groups)),
    }
    lacked = shortages(task for receipt in page.receipts for task in receipt.tasks)
    text = _page(plan, page, row, pace, [*batch_index.since(before, row), *lacked])
    written = site.write(plan.pipeline, file, text)
    site.store.put(f"{plan.pipeline}/docs/{file}", text.encode())
    # Who publishes writes the pages of lists, moments later.
    is_published_next = page.success and pipeline_of(plan.pipeline) is None
    batch_index.add(site, plan.pipeline, row, rows, pages=not is_published_next)
    return str(written)


def _figures(plan: Plan, page: Page, effort: Effort | None) -> dict[str, Any]:
    """The figures of an attempt that the index plots, by the names of `plots.FIGURES`."""
    moved = page.moved[page.moved["kind"] != Role.STATE.value]
    return {
        "records": page.records,
        "warnings": len(page.warnings),
        "moved": int(moved["records"].sum()),
        "spared": sum(int(spared) for spared in moved.get("spared", ()) if pd.notna(spared)),
        "keys": page.keys,
        "seconds": effort.seconds if effort else None,
        "cpu_seconds": effort.cpu_milliseconds / 1000 if effort and effort.cpu_milliseconds is not None else None,
        **(to_builtins(figures_of(plan, page.receipts)) if page.receipts else {}),
        **of_parts(page.done),
        **_measured(page.figures),
    }


def _measured(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What ready-made expectations measured of each table; of a time, how many seconds before the plan it was."""
    known: dict[str, dict[str, float]] = {}
    for each in figures:
        value, of_time = json.loads(each["value"]), Measure.read(each["figure"]).kind.form is FigureForm.AGE
        if of_time and value is not None:
            value = None if each["as_of"] is None else (each["as_of"] - value) // 10**6
        if value is not None:
            known.setdefault(each["table"], {})[each["figure"]] = value
    return {"measured": known} if known else {}


def _worked(receipts: Sequence[Receipt]) -> float:
    """How long task groups ran, added up."""
    return sum(max(0, receipt.ran.ended - receipt.ran.began) for receipt in receipts if receipt.ran) / 1000


def _page(plan: Plan, page: Page, row: Row, pace: float | None, since: Sequence[str]) -> str:
    anew = batch_index.made_anew(row, plan.pipeline)
    return _batch_template().render(
        plan=plan,
        page=page,
        **{name: Markup(text) for name, text in anew.items()},  # noqa: S704  they are rendered
        since=since,
        kept=list(kept_sentences(plan)),
        digest=digest(plan),
        picture=Markup(svg(drawing(plan))),  # noqa: S704  it escapes the texts of users
        groups=list(_groups(plan, page.receipts, pace)),
        heavy=_heavy(plan, page.receipts),
        tasks=list(_tasks(plan, page.receipts)),
        tables=list(_tables(plan, page.receipts)),
        streams=_streams(page.coverage),
        coverage=list(page.coverage.itertuples(index=False)),
        aside=bool(page.coverage["set_aside"].any()),
        moved=page.moved.astype(object).where(page.moved.notna(), None).to_dict("records"),
        documents=[(section, _rendered(section.answer)) for section in page.sections],
        gx_version=gx.__version__,
    )


@cache
def _batch_template() -> jinja2.Template:
    """It includes templates of Great Expectations."""
    env = DefaultJinjaPageView(custom_views_directory=str(PAGES)).env
    env.globals.update(GLOBALS)
    return env.overlay(finalize=seen).get_template("batch.html")


def _groups(plan: Plan, receipts: Sequence[Receipt], pace: float | None) -> Iterator[dict[str, Any]]:
    """What was planned of each task group and could be expected by the pace of batches before, beside what it did."""
    done, read = {receipt.group: receipt for receipt in receipts}, read_by_group(receipts)
    for group in plan.groups if done else ():
        receipt = done.get(group.group)
        ran = receipt.ran if receipt else None
        cpu = [task.cpu_milliseconds for task in receipt.tasks] if receipt else [None]
        known = [each for each in cpu if each is not None]
        yield {
            "group": group.group,
            "wave": group.wave,
            "host": ran.host if ran else "–",
            "run": ran.run if ran else "",
            "began": as_time(ran.began) if ran else "–",
            "took": f"{max(0, ran.ended - ran.began) / 1000:,.1f} s" if ran else "–",
            "expected": "–" if pace is None else f"{pace * group.bytes:,.1f} s",
            "cpu": f"{sum(known) / 1000:,.1f} s" if len(known) == len(cpu) else "–",
            "tasks": len(group.tasks),
            "planned": group.records,
            "read": read.get(group.group),
            "bytes": size(group.bytes),
        }


def _tasks(plan: Plan, receipts: Sequence[Receipt]) -> Iterator[dict[str, Any]]:
    """The tasks that worked longest, with how much of the mean of their stage each had."""
    groups = {task: group.group for group in plan.groups for task in group.tasks}
    tasks = [task for receipt in receipts for task in receipt.tasks]
    taken = {task.task: sum(seen.taken for seen in task.partitions) for task in tasks}
    for task in sorted(tasks, key=lambda each: (-each.milliseconds, each.task))[:_TASKS_SHOWN]:
        beside = [records for ref, records in taken.items() if ref.stage == task.task.stage]
        cpu = task.cpu_milliseconds
        yield {
            "task": str(task.task),
            "group": groups[task.task],
            "taken": taken[task.task],
            "of_mean": f"{taken[task.task] * len(beside) / sum(beside):.2f}" if sum(beside) else "–",
            "took": f"{task.milliseconds / 1000:,.1f} s",
            "cpu": "–" if cpu is None else f"{cpu / 1000:,.1f} s",
        }


def _heavy(plan: Plan, receipts: Sequence[Receipt]) -> list[dict[str, Any]]:
    """The most frequent keys: at least so many records have each, and what share of all that is."""
    known = statistics_of(plan, receipts)
    read = sum(known.records.get(stream.name, 0) for stream in plan.streams)
    heaviest = sorted(known.keys, key=lambda key: (-key.total, key.task, key.key))[:_KEYS_SHOWN]
    return [
        {"key": key.key, "task": str(key.task), "records": key.total, "share": f"{key.total / read:.1%}"}
        for key in heaviest
        if read
    ]


def _tables(plan: Plan, receipts: Sequence[Receipt]) -> Iterator[dict[str, Any]]:
    """What was written for each result table."""
    tasks = [task for receipt in receipts for task in receipt.tasks]
    files = [file for task in tasks for file in task.left(Role.TABLE)]
    for write in plan.writes() if receipts else ():
        of_table = [file for file in files if file.name == write.declared.table]
        yield {
            "table": write.declared.table,
            "mode": write.declared.mode,
            "rows": sum(file.records for file in of_table),
            "size": size(sum(file.size for file in of_table)),
            "files": len(of_table),
        }


def _rendered(answer: ExpectationSuiteValidationResult) -> list[dict[str, Any]]:
    """The sections that Great Expectations renders, except its overview, which links to its own site."""
    answer = copy.deepcopy(answer)
    for result in answer.results:
        # Its views do not escape values.
        result.result = _escaped(result.result)
    sections: list[dict[str, Any]] = ValidationResultsPageRenderer().render(answer).to_json_dict()["sections"][1:]
    for section in sections:
        # Its headings of columns are HTML in a text, which is escaped.
        blocks = section["content_blocks"]
        section["content_blocks"] = [block for block in blocks if block["content_block_type"] != "header"]
        section["of_column"] = section["section_name"] != "Table-Level Expectations"
    return sections


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return html.escape(visible(value, MOST_IN_A_CELL, lines=True))
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(inner) for inner in value]
    return value


def _streams(coverage: pd.DataFrame) -> list[dict[str, Any]]:
    """What stages read of each stream, in all of its partitions."""
    which = "stage", "input", "table", "null_keys"
    sums = "planned", "taken", "dropped", "set_aside", "nulls", "keys"
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in coverage[[*which, *sums]].to_dict("records"):
        key = tuple(row[name] for name in which)
        read = found.setdefault(key, {**row, "partitions": 0, **dict.fromkeys(sums, 0)})
        read["partitions"] += 1
        for name in sums:
            read[name] += row[name]
    return list(found.values())
