"""Sizes on the command line: schemes compared, what is proposed and why, and hot keys. Nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batches.history import history
from cli import pipelines
from cli.candidates import Basis, Compared, Row, basis, compare
from cli.output import as_plain, show, show_json, show_table
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.model.plan import Plan
from partitioning.model.schemes import Scheme
from partitioning.model.statistics import Statistics
from partitioning.sections import many, percent, size
from partitioning.sizing.footprint import Footprint
from partitioning.sizing.hotkeys import HotKey, hot_keys
from partitioning.sizing.proposal import Targets
from partitioning.sizing.workload import LEFT

# How many batches back the proposal looks, if no longer cool-down is asked for.
_BATCHES = 10
_MOST_HOT_KEYS = 20


def schemes(
    named: str, root: str, settings: Settings, given: Sequence[str], targets: Targets, *, as_json: bool
) -> None:
    """Compare schemes on what the next batch would read; else on what the open or last batch reads."""
    pipeline = pipelines.load(named)
    store = S3Store(root)
    standing = Ledger(store, pipeline.name).standing()
    past = history(Ledger(store, pipeline.name), standing.published, max(_BATCHES, targets.cooldown + 1))
    found = basis(pipeline, standing, past, settings)
    if found is None:
        sentence = "Nothing to compare: no records have arrived yet"
        show_json({"sentence": sentence, "stages": [], "hot_keys": None}) if as_json else show(sentence)
        return
    compared = compare(found, settings, given, targets)
    hot = _hot(standing.published, past, targets)
    if as_json:
        show_json(_document(found, compared, hot))
    else:
        show_compared(found, compared, hot)


def _hot(published: Plan | None, past: Sequence[Statistics], targets: Targets) -> tuple[HotKey, ...] | None:
    """The hot keys of the last published batch; None if its receipts are not there."""
    if published is None or not past or past[-1].batch != published.batch:
        return None
    return hot_keys(published, past[-1], targets.max_tasks)


def show_compared(found: Basis, compared: Compared, hot: tuple[HotKey, ...] | None) -> None:
    """Print a table for each stage, what is proposed and why, and the hot keys."""
    show(f"{found.sentence}.", *([] if found.history else [_NO_HISTORY]), _LEGEND, "")
    for sized in compared.proposal.stages:
        rows = compared.rows[sized.stage]
        notes = [f"Proposed: {sized.scheme or 'no change'}. {_sentence(sized.why)}"]
        show_table(f"Stage {sized.stage}", _COLUMNS, map(_cells, rows), notes)
        for row in rows:
            for finding in row.findings:
                show(f"{', '.join(row.names)} is refused: {finding.what}", "")
    proposal = compared.proposal
    show(f"Task groups: {proposal.groups} proposed. {_sentence(proposal.why)}", "")
    _show_hot(hot)


_NO_HISTORY = "No batch was published yet, so the proposal goes by bytes only."
_COLUMNS = (
    "scheme",
    "tasks",
    "reads",
    "× size",
    "filter",
    "mean",
    "heaviest",
    "× mean",
    "work",
    "task",
    "exchanges",
    "moved",
    "groups × mean",
)
_LEGEND = (
    "Tasks read `× size` of what there is, the mean and the heaviest so many bytes; `filter` of them leave records to "
    f"others. `work` counts a byte so left as {float(LEFT)}: the hardest-working `task` has so much."
)


def _cells(row: Row) -> tuple[object, ...]:
    name, figures = ", ".join(row.names), row.figures
    if figures is None:
        return (f"{name}: refused", *[None] * (len(_COLUMNS) - 1))
    return (
        name,
        figures.tasks,
        figures.reads,
        float(figures.amplification),
        figures.filtering,
        size(round(figures.mean)),
        size(figures.heaviest),
        float(figures.heaviest / figures.mean) if figures.mean else 1.0,
        size(figures.work),
        str(figures.worst),
        figures.exchanges,
        _moved(figures),
        float(figures.skew),
    )


def _moved(figures: Footprint) -> str:
    if not figures.exchanges:
        return "nothing"
    records, moved = figures.moved.records, figures.moved.bytes
    if records is None or moved is None:
        return "unknown"
    return f"{many(records, 'record')}, {size(moved)}"


def _sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:]}."


def _show_hot(hot: tuple[HotKey, ...] | None) -> None:
    if hot is None:
        show("Hot keys: unknown, as there are no receipts of a published batch.")
        return
    if not hot:
        show("Hot keys: none in the last published batch.")
        return
    columns = ("key", "stage", "task", "records", "of its task", "of a mean task", "remedy", "why")
    rows = [
        (
            each.key,
            each.stage,
            str(each.task),
            each.records,
            percent(each.of_task),
            percent(each.of_mean),
            f"{each.remedy}: {each.scheme}" if each.scheme else each.remedy,
            each.why,
        )
        for each in hot[:_MOST_HOT_KEYS]
    ]
    more = [f"The heaviest {_MOST_HOT_KEYS} of {len(hot)}."] if len(hot) > _MOST_HOT_KEYS else []
    show_table("Hot keys of the last published batch", columns, rows, more)


def _document(found: Basis, compared: Compared, hot: tuple[HotKey, ...] | None) -> dict[str, Any]:
    proposal = compared.proposal
    return {
        "sentence": found.sentence,
        "history": [each.batch for each in found.history],
        "stages": [
            {
                "stage": each.stage,
                "proposed": _text(each.scheme),
                "tasks": each.tasks,
                "before": each.before,
                "why": each.why,
                "schemes": [_plain(row) for row in compared.rows[each.stage]],
            }
            for each in proposal.stages
        ],
        "groups": {"proposed": proposal.groups, "why": proposal.why},
        "hot_keys": None if hot is None else [_hot_plain(each) for each in hot],
    }


def _plain(row: Row) -> dict[str, Any]:
    findings = [as_plain(finding) for finding in row.findings]
    figures = row.figures
    if figures is None:
        return {"names": row.names, "refused": findings}
    return {
        "names": row.names,
        "refused": findings,
        "tasks": figures.tasks,
        "reads": figures.reads,
        "amplification": float(figures.amplification),
        "filtering": figures.filtering,
        "bytes": {"mean": float(figures.mean), "heaviest": figures.heaviest},
        "work": {"heaviest": figures.work, "task": figures.worst},
        "exchanges": figures.exchanges,
        "moved": {"records": figures.moved.records, "bytes": figures.moved.bytes},
        "groups": {"count": figures.groups, "skew": float(figures.skew)},
    }


def _hot_plain(each: HotKey) -> dict[str, Any]:
    return {
        "key": each.key,
        "stage": each.stage,
        "task": each.task,
        "records": each.records,
        "of_task": float(each.of_task),
        "of_mean": float(each.of_mean),
        "remedy": each.remedy,
        "scheme": _text(each.scheme),
        "why": each.why,
    }


def _text(scheme: Scheme | None) -> str | None:
    return None if scheme is None else str(scheme)
