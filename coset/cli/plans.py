"""Plans on the command line: make the next one, explain one, or show two side by side. Only a new plan is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from coset.batches import steps
from coset.batches.attempt import Attempt
from coset.batches.backfills.swaps import newest_shown
from coset.batches.ends import balance
from coset.batches.history import statistics
from coset.batches.planning import ignored, preview
from coset.cli import pipelines
from coset.cli.machine import writing
from coset.cli.other_stores import NEW, check_meant, elsewhere
from coset.cli.output import Answer, Block
from coset.sources.discovery import as_of_now
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Option, PlanAsking, Run, Status
from partitioning.diff.plan_diff import Diff, diff, diff_sections
from partitioning.documents.document import decode, digest, plain, unpack
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.explain.reason_texts import move_reason
from partitioning.explain.surprises import surprises
from partitioning.explain.table_query import rows_are, table_query
from partitioning.explain.watermarks import MarkedBatch, Period, coming, when_section
from partitioning.kinds import Kind
from partitioning.model.graph import Graph
from partitioning.model.meaning import meanings
from partitioning.model.plan import Plan
from partitioning.model.streams import renamed
from partitioning.pictures.drawing import drawing
from partitioning.pictures.mermaid import mermaid
from partitioning.pictures.svg import svg
from partitioning.planning.origins import Origins, over
from partitioning.values import replace


@dataclass(frozen=True, slots=True)
class Form:
    """How a plan is shown: as tables or as a Mermaid flowchart, and drawn to the file `svg` as well.

    It says with which batch the rows come that are of the time `when`, if one is named."""

    mermaid: bool = False
    svg: Path | None = None
    when: Period | None = None


def make(named: str, root: str, settings: Settings, *, new_store: bool) -> Answer:
    """Plan the next batch, store the plan and show it. Raises Refused if a store that has no batch is not meant."""
    pipeline = pipelines.load(named)
    check_meant(pipeline.name, root, PlanAsking(pipeline.name), new=new_store)
    ref, sentence = steps.plan(pipeline, root, settings)
    if ref is None:
        return _none(sentence)
    ledger, plan = ref.load()
    return _shown(ledger, plan, sentence, Form(), stored=True, runs=True)


def explain_next(named: str, root: str, settings: Settings, form: Form) -> Answer:
    """The open batch's plan, or what the next plan would be; the newest that there is if there is nothing to plan."""
    pipeline, store = pipelines.load(named), store_at(root)
    taken = preview(pipeline, store, settings)
    ledger = Ledger(store, pipeline.name)
    if taken.plan is None:
        last = ledger.standing().plan
        if last is None:
            return _none(taken.sentence)
        sentence = f"{taken.sentence}; batch {last.batch} is shown, the last{ignored(last, settings)}"
        return _shown(ledger, last, sentence, form, stored=True)
    stored = ledger.plan(taken.plan.batch) is not None
    sentence = taken.sentence if stored else taken.sentence.replace("is planned", "would be planned")
    others = "" if taken.plan.batch else elsewhere(pipeline.name, root)
    if others:
        sentence = f"{sentence}. But {others}"
    return _shown(ledger, taken.plan, sentence, form, stored=stored, to_begin=[NEW] if others else [])


def explain_batch(named: str, root: str, number: int, form: Form) -> Answer:
    """The stored plan of a batch. Raises Refused if there is none."""
    ledger = Ledger(store_at(root), pipelines.load(named).name)
    return _shown(ledger, stored_plan(ledger, number), "", form, stored=True)


def query(named: str, root: str, table: str, number: int | None) -> Answer:
    """The query that a result table is, over the records of all batches up to this one, or the last that is published;
    before the first, of the next. Raises Refused for an unknown table or batch."""
    pipeline, store = pipelines.load(named), store_at(root)
    pipelines.tables_of(pipeline, named, [table])
    ledger = Ledger(store, pipeline.name)
    plan = ledger.standing().published if number is None else stored_plan(ledger, number)
    written = plan.tables if plan else ()
    if number is not None and table not in written:
        what, then = f"batch {number} writes no table {table!r}", f"it writes {', '.join(written)}"
        raise Refused.of(Kind.TABLE_UNKNOWN, what, named, then, table=table)
    if plan is None or table not in written:
        taken = preview(pipeline, store, DEFAULTS)
        if taken.plan is None:
            return _none(taken.sentence)
        plan = taken.plan
    upto = balance(ledger, ledger.published_before(plan.batch)).then(plan)
    shown = newest_shown(store, pipeline.name, plan.batch)
    shown = shown if shown and table in shown.tables else plan
    graph = _lying_now(shown.graph, pipeline)
    declared = {each.name: each for each in graph.streams}
    planned = [replace(each, declared=declared[each.name]) for each in plan.streams if each.name in declared]
    now, skipped = [*map(as_of_now, planned)], [each.offsets for each in upto.skipped]
    if any(renamed(then.ids, today.ids) for then, today in zip(planned, now, strict=True)):
        # Steps of then would name columns that are no more.
        graph = pipeline.graph
    text = table_query(graph, plan, table, skipped, upto.doubled or (), now, shown)
    if _origin(graph, table) != _origin(over(pipeline.graph, shown.streams), table):
        text = f"-- The pipeline was changed since: this is the query of the rows that are there.\n{text}"
    means = meanings(graph)[table]
    value = {"table": table, "batch": plan.batch, "is_query": means.is_query, "rows": rows_are(means), "query": text}
    return Answer(value, text.rstrip("\n").split("\n"))


def _lying_now(graph: Graph, pipeline: Pipeline) -> Graph:
    """The graph of a plan, of which streams lie where the pipeline says by now."""
    sources = {stream.name: stream.source for stream in pipeline.streams}
    streams = (replace(each, source=sources.get(each.name, each.source)) for each in graph.streams)
    return replace(graph, streams=tuple(streams))


def _origin(graph: Graph, table: str) -> str:
    """What tells the query of a table from others."""
    return Origins(graph).of(next(write.step for write in graph.writes if write.table == table)).identity


def stored_plan(ledger: Ledger, number: int) -> Plan:
    """The plan of a batch. Raises Refused if there is none."""
    plan = ledger.plan(number) if number >= 0 else None
    if plan is None:
        what = f"there is no batch {number} of {ledger.pipeline}"
        where = ledger.uri(ledger.key("plans", number))
        then = (Status(ledger.pipeline), " shows which is the newest")
        raise Refused.of(Kind.BATCH_UNKNOWN, what, where, then, number=number, pipeline=ledger.pipeline)
    return plan


def of_batch(ledger: Ledger, number: int | None) -> Plan:
    """The plan of a batch, of the newest if no number is given. Raises Refused if there is none."""
    if number is not None:
        return stored_plan(ledger, number)
    plan = ledger.standing().plan
    if plan is None:
        what = f"{ledger.pipeline} has no batch yet"
        then = ("make one: ", Run(ledger.pipeline))
        raise Refused.of(
            Kind.BATCH_UNKNOWN, what, ledger.uri(f"{ledger.pipeline}/plans/"), then, pipeline=ledger.pipeline
        )
    return plan


def _shown(
    ledger: Ledger,
    plan: Plan,
    sentence: str,
    form: Form,
    *,
    stored: bool,
    runs: bool = False,
    to_begin: Sequence[Option] = (),
) -> Answer:
    if form.svg:
        with writing(form.svg, "the picture"):
            form.svg.write_text(svg(drawing(plan)), encoding="utf-8")
    if form.mermaid:
        flowchart = mermaid(drawing(plan)).rstrip("\n")
        return Answer({"sentence": sentence, "mermaid": flowchart}, flowchart.split("\n"))
    before = ledger.plan(plan.batch - 1) if plan.batch else None
    last = statistics(Attempt.published(ledger, before)) if before else None
    sections = explain(plan, before, last, pipelines.shown())
    if form.when:
        came = MarkedBatch(f"batch {before.batch}", before.watermarks) if before else None
        this = MarkedBatch(f"batch {plan.batch}", plan.watermarks)
        sections += (when_section(form.when, list(coming(plan.graph, form.when, came, this)), came, this),)
    uri = ledger.uri(ledger.key("plans", plan.batch)) if stored else None
    text: tuple[Block, ...] = (
        *([f"{sentence}.", ""] if sentence else []),
        *sections,
        *([f"Drawn as {form.svg}"] if form.svg else []),
        f"Stored as {uri}" if uri else _stored_by(plan.pipeline, to_begin),
        *([f"`{pipelines.shown().line(Run(plan.pipeline))}` runs it"] if runs else []),
    )
    value = {"sentence": sentence, "uri": uri, "digest": digest(plan), "plan": partial(plain, plan)}
    return Answer(value | {"surprises": surprises(plan, last), "sections": sections}, text)


def _stored_by(pipeline: str, to_begin: Sequence[Option]) -> str:
    plan, run = (pipelines.shown().line(each(pipeline), *to_begin) for each in (PlanAsking, Run))
    return f"Nothing is stored: `{plan}` stores the plan, `{run}` also runs it"


def _none(sentence: str) -> Answer:
    nothing: dict[str, object] = {"uri": None, "digest": None, "plan": None, "surprises": [], "sections": []}
    return Answer({"sentence": sentence} | nothing, [sentence])


_NEXT = "next"
_USAGE = "write `coset diff PIPELINE 3 4`, `coset diff PIPELINE 3 next` or `coset diff old.json.gz new.json.gz`"


def compare_batches(named: str, old: str, new: str, root: str, settings: Settings) -> Answer:
    """What differs between two batches of a pipeline; `new` may be `next`, what would be planned now.

    Raises Refused if there is no such batch.
    """
    pipeline, store = pipelines.load(named), store_at(root)
    ledger = Ledger(store, pipeline.name)
    before = stored_plan(ledger, _number(old))
    if new != _NEXT:
        return _compared(before, stored_plan(ledger, _number(new)))
    taken = preview(pipeline, store, settings)
    if taken.plan is None:
        return Answer({"sentences": [taken.sentence]}, [taken.sentence])
    return _compared(before, taken.plan)


def compare_files(old: str, new: str) -> Answer:
    """What differs between two stored plans, each a file or an S3 URI. Raises Refused if one is not there."""
    return _compared(_read(old), _read(new))


def misused(words: Sequence[str]) -> Refused:
    """What to raise for anything but two plans, or a pipeline and two batches."""
    what = f"{len(words)} names are not two plans to compare"
    return Refused.of(Kind.ARGUMENT, what, " ".join(words), _USAGE, words=len(words))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no batch number", "OLD NEW", _USAGE, text=text)
    return int(text)


def _read(named: str) -> Plan:
    root, _, key = named.rpartition("/")
    try:
        data = store_at(root).get(key) if "://" in named else Path(named).read_bytes()
    except OSError as error:
        what = f"there is no plan {named!r}: {error.strerror}"
        raise Refused.of(Kind.BATCH_UNKNOWN, what, named, _USAGE, named=named) from error
    if data is None:
        what = "there is no such plan"
        raise Refused.of(Kind.BATCH_UNKNOWN, what, named, "use the URI that `coset explain` shows", named=named)
    return decode(Plan, unpack(data, named) if named.endswith(".gz") else data, named)


def _compared(before: Plan, now: Plan) -> Answer:
    differences = diff(before, now)
    text: tuple[Block, ...] = (f"{_name(before)} → {_name(now)}", "", *diff_sections(differences))
    return Answer(partial(_document, differences, before, now), text)


def _name(plan: Plan) -> str:
    return f"{plan.pipeline}, batch {plan.batch} ({digest(plan)})"


def _document(differences: Diff, before: Plan, now: Plan) -> dict[str, Any]:
    """The diff as plain data. Shares are exact fractions."""
    return {
        "before": {"pipeline": before.pipeline, "batch": before.batch, "digest": digest(before)},
        "now": {"pipeline": now.pipeline, "batch": now.batch, "digest": digest(now)},
        "sentences": differences.sentences,
        "states": differences.states,
        "changes": differences.changes,
        "handovers": differences.handovers,
        "moves": [
            {"task": str(move.task), "before": move.before, "now": move.now, "why": move_reason(move.why)}
            for move in differences.moves
        ],
        "results": differences.results,
    }
