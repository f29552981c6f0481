"""Plans on the command line: make the next one, or explain one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from coset.batches import steps
from coset.batches.planning import preview
from coset.cli import pipelines
from coset.cli.output import show, show_json, show_page, show_table
from partitioning.authoring.settings import Settings
from partitioning.commands import Status
from partitioning.documents.document import digest, plain
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, about
from partitioning.explain.explain import explain
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.pictures.drawing import drawing
from partitioning.pictures.mermaid import mermaid
from partitioning.pictures.svg import svg


@dataclass(frozen=True, slots=True)
class Form:
    """How a plan is shown: as tables, as JSON or as a Mermaid flowchart, and drawn to the file `svg` as well."""

    as_json: bool = False
    mermaid: bool = False
    svg: Path | None = None


def make(named: str, root: str, settings: Settings, *, as_json: bool) -> None:
    """Plan the next batch, store the plan and show it."""
    pipeline = pipelines.load(named)
    ref, sentence = steps.plan(pipeline, root, settings)
    if ref is None:
        _show_none(sentence, as_json=as_json)
        return
    ledger, plan = ref.load()
    _show(ledger, plan, sentence, Form(as_json), stored=True)


def explain_next(named: str, root: str, settings: Settings, form: Form) -> None:
    """Show the open batch's plan, or what the next plan would be."""
    pipeline, store = pipelines.load(named), store_at(root)
    taken = preview(pipeline, store, settings)
    ledger = Ledger(store, pipeline.name)
    if taken.plan is None:
        _show_last(ledger, taken.sentence, form)
        return
    stored = ledger.plan(taken.plan.batch) is not None
    sentence = taken.sentence if stored else taken.sentence.replace("is planned", "would be planned")
    _show(ledger, taken.plan, sentence, form, stored=stored)


def _show_last(ledger: Ledger, sentence: str, form: Form) -> None:
    """Show the newest plan that there is, as there is nothing to plan."""
    last = ledger.standing().plan
    if last is None:
        _show_none(sentence, as_json=form.as_json)
    else:
        _show(ledger, last, f"{sentence}; batch {last.batch} is shown, the last", form, stored=True)


def explain_batch(named: str, root: str, number: int, form: Form) -> None:
    """Show the stored plan of a batch. Raises Refused if there is none."""
    ledger = Ledger(store_at(root), pipelines.load(named).name)
    _show(ledger, stored_plan(ledger, number), "", form, stored=True)


def stored_plan(ledger: Ledger, number: int) -> Plan:
    """The plan of a batch. Raises Refused if there is none."""
    plan = ledger.plan(number) if number >= 0 else None
    if plan is None:
        raise Refused(
            Finding(
                Kind.BATCH_UNKNOWN,
                f"there is no batch {number} of {ledger.pipeline}",
                ledger.uri(ledger.key("plans", number)),
                (Status(ledger.pipeline), " shows which is the newest"),
                about(number=number, pipeline=ledger.pipeline),
            )
        )
    return plan


def show_plan(plan: Plan, before: Plan | None) -> None:
    """Print a plan's tables."""
    for section in explain(plan, before):
        show_table(section.title, section.columns, section.rows, section.notes)


def _show(ledger: Ledger, plan: Plan, sentence: str, form: Form, *, stored: bool) -> None:
    if form.svg:
        _draw(plan, form.svg)
    if form.mermaid:
        show_page(mermaid(drawing(plan)).rstrip("\n"))
        return
    before = ledger.plan(plan.batch - 1) if plan.batch else None
    uri = ledger.uri(ledger.key("plans", plan.batch)) if stored else None
    if form.as_json:
        sections = to_builtins(explain(plan, before))
        show_json({"sentence": sentence, "uri": uri, "digest": digest(plan), "plan": plain(plan), "sections": sections})
        return
    if sentence:
        show(f"{sentence}.", "")
    show_plan(plan, before)
    if form.svg:
        show(f"Drawn as {form.svg}")
    if uri:
        show(f"Stored as {uri}")
    else:
        show("Nothing is stored: `coset plan` stores the plan, `coset run` also runs it")


def _draw(plan: Plan, file: Path) -> None:
    try:
        file.write_text(svg(drawing(plan)), encoding="utf-8")
    except OSError as error:
        raise Refused(
            Finding(
                Kind.LOCAL_FILE,
                f"the picture cannot be written: {error}",
                str(file),
                "name a file in a folder that is there",
                about(file=file),
            )
        ) from error


def _show_none(sentence: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"sentence": sentence, "uri": None, "digest": None, "plan": None, "sections": []})
    else:
        show(sentence)
