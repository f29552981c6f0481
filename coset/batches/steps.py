"""The steps of a batch, for Airflow and the command line.

Each step returns a sentence or a page about what it did. Any process may run it again at any time: a step that is done
is found done. Steps pass each other only a `BatchRef`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from msgspec import to_builtins

from coset.batches import reported
from coset.batches.attempt import Attempt
from coset.batches.pace import balanced, found_by, warned
from coset.batches.ref import BatchRef, LoadedBatch
from coset.lineage import emitting
from coset.reports import next_steps
from coset.sources.counting import Counting, uncounted
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Replan, Shown
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import RememberingStore
from partitioning.documents.stores import store_at
from partitioning.errors import Refused, Unjudged, refuse
from partitioning.explain.explain import explain
from partitioning.explain.missing import doubles, missing
from partitioning.explain.watermarks import watermarks_section
from partitioning.model.backfill import Swap
from partitioning.model.journal import Part, as_time
from partitioning.model.plan import Plan, TaskGroup
from partitioning.model.receipt import TaskReceipt, shortages
from partitioning.model.verdict import Commit, Decision, Outcome, Verdict, outcome_of_batch, outcome_of_check
from partitioning.sections import Section, many, markdown, size
from partitioning.texts import in_markdown
from spark_jobs.engine.occasions import now

if TYPE_CHECKING:
    import pandas as pd

_APART_SHOWN = 5
# Airflow keeps 250 characters of a label.
_LABEL_WIDTH = 200


def plan(
    pipeline: Pipeline, store_root: str, settings: Settings = DEFAULTS, *, again: bool = False
) -> tuple[BatchRef | None, str]:
    """The batch to work on, None if there is nothing to do, and a sentence about it. Raises as `planning.take_up`."""
    batch, sentence = take_up(pipeline, store_root, settings, again=again)
    return (None if batch is None else BatchRef(batch.plan_uri, batch.digest)), sentence


def take_up(
    pipeline: Pipeline, store_root: str, settings: Settings = DEFAULTS, *, again: bool = False
) -> tuple[LoadedBatch | None, str]:
    """The same for a process that goes on with the batch: what planning has read stays read."""
    from coset.batches import planning  # noqa: PLC0415  Airflow imports this file when it parses DAGs
    from coset.batches.tables.table_base import settled  # noqa: PLC0415

    store = RememberingStore(settled(store_root))
    taken = planning.take_up(pipeline, store, settings, again=again)
    if taken.plan is None:
        return None, taken.sentence
    batch = LoadedBatch.of(store, taken.plan)
    emitting.tell_start(batch.ledger, taken.plan)
    return batch, taken.sentence


def replan(
    pipeline: Pipeline, store_root: str, settings: Settings, why: str, docs: Path | None = None
) -> tuple[str, BatchRef | None, str]:
    """Give up the open batch and plan its records again. Returns a sentence about the first, then as `plan`.

    Raises Refused if no batch is open or if its publication is decided. Raises as `plan`, and the batch stays given up.
    """
    verdict = abandon(pipeline, store_root, why, docs)
    return f"Batch {verdict.batch} is abandoned ({verdict.why})", *plan(pipeline, store_root, settings)


def abandon(pipeline: Pipeline, store_root: str, why: str, docs: Path | None = None) -> Verdict:
    """Give up the open batch and say so in the Data Docs. Raises as `publication.abandon`."""
    from coset.batches import publication  # noqa: PLC0415
    from coset.reports import batch_index  # noqa: PLC0415
    from coset.reports.site import Site  # noqa: PLC0415

    store = store_at(store_root)
    ledger = Ledger(store, pipeline.name)
    verdict = publication.abandon(ledger, why)
    if (planned := ledger.plan(verdict.batch)) is not None:
        emitting.tell_given_up(ledger, planned, verdict)
    when = as_time(verdict.taken.ended) if verdict.taken else ""
    site = Site.shown(docs, store, pipeline.name)
    batch_index.give_up(site, pipeline.name, verdict.batch, verdict.attempt, why, when)
    reported.closed(ledger, docs)
    return verdict


def group_labels(batch: BatchRef) -> dict[int, str]:
    """The label of each task group, by its number."""
    _, planned = batch.load()
    return {group.group: label(group) for group in planned.groups}


def groups_of_wave(batch: BatchRef, wave: int) -> list[TaskGroup]:
    """The task groups of a wave. Empty if the plan has fewer waves."""
    _, planned = batch.load()
    return [group for group in planned.groups if group.wave == wave]


def plan_page(batch: BatchRef) -> str:
    """The plan on a page of Markdown, with the changes since the batch before."""
    ledger, planned = batch.load()
    return markdown(explain(planned, ledger.plan(planned.batch - 1) if planned.batch else None))


def label(group: TaskGroup) -> str:
    """A task group as people see it: `group 1: flights+planes/2 3 (12.0 MB)`."""
    by_stage = groupby(group.tasks, key=lambda task: task.stage)
    named = (f"{stage}/{' '.join(str(each.task) for each in tasks)}" for stage, tasks in by_stage)
    tasks = shorten(" ".join(named), _LABEL_WIDTH, placeholder=" …")
    return f"group {group.group}: {tasks} ({group.bytes / 1e6:.1f} MB)"


def audit(batch: BatchRef) -> str:
    """Make the audit tables from the receipts.

    Raises Refused if a receipt is missing or is of another plan. Raises Refused and closes the attempt if a planned
    file has changed, because nobody knows which content was read, or if a receipt is of a version with other digests.
    The next run then starts another attempt of the same plan.
    """
    from coset.batches.auditing.audit import audit_of  # noqa: PLC0415
    from coset.sources.pinned import not_as_planned  # noqa: PLC0415
    from partitioning.documents.receipts import receipts, without_digests  # noqa: PLC0415

    began = now()
    ledger, planned = batch.load()
    if verdict := ledger.verdict(planned.batch):
        return _decided(verdict)
    attempt = ledger.attempt(planned.batch)
    read = receipts(ledger, planned, attempt)
    anew = Replan(planned.pipeline, repaired=True)
    findings = (
        *not_as_planned(planned.streams, anew, were_read=True),
        *without_digests(ledger, planned, attempt, read),
    )
    if findings:
        refusal = Refused(*findings)
        closed = canonical({"findings": to_builtins(refusal.findings)})
        ledger.close_attempt(planned.batch, attempt, closed)
        emitting.tell_failure(ledger, planned, attempt, Outcome.FAILED, closed)
        raise refusal
    tables = audit_of(ledger, planned, attempt, read)
    batch.handed.audited, batch.handed.audit = attempt, tables
    reported.done(ledger, planned, Part.AUDIT, began, attempt)
    coverage = tables.coverage
    # Beside the planned records tasks take what steps kept, and what others gave them.
    of_streams = coverage[coverage["input"].isin([stream.name for stream in planned.streams])]
    return (
        f"Batch {planned.batch}, attempt {attempt}, is audited: {many(int(of_streams['planned'].sum()), 'record')} "
        f"planned, {int(of_streams['taken'].sum()):,} taken, {int(of_streams['dropped'].sum()):,} dropped without a "
        f"key, {int(coverage['set_aside'].sum()):,} set aside, {many(len(tables.violations), 'violation')}"
    )


def check(batch: BatchRef, docs_folder: Path | None, counting: Counting = uncounted) -> str:
    """Let Great Expectations judge the attempt, and decide to publish it if it passes.

    Data Docs are written to `docs_folder` and to the store; without a folder no page is made. Rows of large tables are
    counted. Raises Refused with each unmet expectation, and closes the attempt: the next run starts another attempt of
    the same plan.
    """
    from coset.batches import publication  # noqa: PLC0415
    from coset.batches.auditing.audit_tables import load  # noqa: PLC0415
    from coset.batches.continuity import continuity  # noqa: PLC0415
    from coset.batches.kept import replaced_state  # noqa: PLC0415
    from coset.batches.kept_queries import held_against_state  # noqa: PLC0415
    from coset.batches.measuring import figures, measured  # noqa: PLC0415
    from coset.batches.result_rows import result_rows  # noqa: PLC0415
    from coset.batches.tables.logs import Logs  # noqa: PLC0415
    from coset.batches.tables.table_rows import rows_balanced, rows_kept  # noqa: PLC0415
    from coset.reports.site import Site  # noqa: PLC0415
    from expectations.checkpoint import judge  # noqa: PLC0415
    from expectations.questions import Evidence  # noqa: PLC0415

    began = now()
    ledger, planned = batch.load()
    if (number := batch.handed.audited) is None:
        if verdict := ledger.verdict(planned.batch):
            return _decided(verdict)
        number = ledger.attempt(planned.batch)
    refuse(replaced_state(ledger, planned))
    attempt = Attempt(ledger, planned, number)
    tables = batch.handed.audit or load(ledger, planned, attempt.number)
    logs = Logs()
    before = continuity(ledger, planned, logs)
    of_tables = {
        "rows": rows_kept(ledger, planned, attempt.artefacts, logs),
        "balanced": list(rows_balanced(ledger, planned, list(attempt.tasks), logs)),
        "queries": list(held_against_state(attempt, logs)),
    }
    outputs = result_rows(attempt)
    found, failed = measured(attempt, outputs)
    of_tables["figures"] = figures(ledger, planned, attempt.number, found, failed)
    judgement = judge(
        planned,
        Evidence(**vars(tables), **vars(before), **of_tables),
        outputs,
        attempt=attempt.number,
        site=None if docs_folder is None else Site(docs_folder, ledger.store),
        receipts=tuple(attempt.receipts.values()),
        done=reported.parts(ledger, planned, attempt.number, (Part.PLAN, Part.AUDIT)),
        counting=counting,
    )
    report = canonical(judgement.results)
    ledger.put_judgement(planned.batch, attempt.number, report)
    if not judgement.success:
        ledger.close_attempt(planned.batch, attempt.number, report)
        reported.done(ledger, planned, Part.CHECK, began, attempt.number)
        reported.opened(ledger, planned, docs_folder)
        became = outcome_of_check(judgement.findings)
        emitting.tell_failure(ledger, planned, attempt.number, became, report)
        raise (Unjudged if became is Outcome.UNJUDGED else Refused)(*judgement.findings)
    verdict = publication.decide(attempt, judgement.why, found, logs)
    batch.handed.checked, batch.handed.logs = attempt.number, logs
    reported.done(ledger, planned, Part.CHECK, began, attempt.number)
    return _decided(verdict) + "".join(f"; warning: {found.what.splitlines()[0]}" for found in judgement.warnings)


def publish(batch: BatchRef, docs_folder: Path | None = None) -> str:
    """Publish the decided batch, show that in the Data Docs if there are any, and commit its ends to topics' brokers.

    A half-done swap is finished first, so that the batch comes after it in every table. Raises as `swaps.whole` and
    `publication.publish`.
    """
    from coset.batches import publication  # noqa: PLC0415
    from coset.batches.backfills.swaps import whole  # noqa: PLC0415
    from coset.batches.ends import settled  # noqa: PLC0415
    from coset.batches.mirroring import mirror  # noqa: PLC0415
    from coset.batches.tables.iceberg import follow  # noqa: PLC0415
    from coset.batches.tables.logs import Logs  # noqa: PLC0415

    began = now()
    ledger, planned = batch.load()
    batch.handed.decided = whole(ledger.store, planned.pipeline)
    logs = batch.handed.logs or Logs()
    commit = publication.publish(ledger, planned, batch.handed.checked, logs)
    reported.published(ledger, planned, commit, began, docs_folder, logs)
    emitting.tell_published(ledger, planned)
    said = f"{_published(commit)}{mirror(ledger, planned)}{settled(ledger, planned.batch)}"
    following = follow(ledger.store, planned.pipeline, planned, batch.handed.checked, logs)
    return "; ".join([said, *(f"{name} follows" for name in following)])


def report(batch: BatchRef, docs_folder: Path | None, shown: Shown | None = None) -> str:
    """The batch on a page of Markdown: what was read, the verdict or the findings of the last attempt, the tables, and
    where the Data Docs are."""
    from coset.batches.auditing.audit import broker_gaps  # noqa: PLC0415
    from coset.batches.auditing.audit_tables import load_some  # noqa: PLC0415

    ledger, planned = batch.load()
    verdict, commit = ledger.verdict(planned.batch), ledger.commit(planned.batch)
    sections, unread = list[Section](), list[str]()
    attempt = Attempt(ledger, planned, verdict.attempt if verdict else ledger.attempt(planned.batch))
    if verdict is not None and verdict.decision is Decision.PUBLISH:
        apart = _apart(attempt.tasks)
        try:
            tables = load_some(ledger, planned, verdict.attempt, "coverage", "moved")
            seen = broker_gaps(planned, tables["coverage"])
            sections = [
                _coverage(tables["coverage"]),
                *watermarks_section(planned.watermarks, planned.graph),
                *apart,
                *missing(planned, seen),
                *doubles(planned),
                *_moved(tables["moved"]),
            ]
        except Refused as refusal:
            # A decided batch is not audited again.
            unread = [f"What was read is not shown: {finding.what}, {finding.where}" for finding in refusal.findings]
    found = warned(ledger, planned.batch, attempt.number)
    told = [f"Warning: {' '.join(warning.what.split())}" for warning in found]
    told += [f"Rows before - gone + come = after: {each}" for each in balanced(ledger, planned.batch, attempt.number)]
    pages = () if docs_folder is None else (docs_folder / planned.pipeline / "index.html",)
    became = outcome(ledger, planned, batch.handed.decided).of(len(found))
    return "\n".join(
        [
            f"## {planned.pipeline}, batch {planned.batch}: {became}",
            "",
            *((markdown(sections),) if sections else ()),
            *((f"- Its task groups ran {attempt.effort}",) if attempt.effort else ()),
            *(f"- {in_markdown(each)}" for each in shortages(attempt.tasks)),
            f"- {in_markdown(_decided(verdict) if verdict else 'The batch is not decided yet')}",
            f"- {in_markdown(_published(commit) if commit else 'Nothing is published yet')}",
            *(f"- {in_markdown(one)}" for one in (*told, *(unread if verdict else ()))),
            *(() if verdict else _failed(ledger, planned, shown or next_steps.shown())),
            f"- {in_markdown(f'The plan is {batch.plan_uri}, {batch.digest}')}",
            *(f"- {in_markdown(f'Data Docs: {page}')}" for page in pages),
        ]
    )


def outcome(ledger: Ledger, planned: Plan, decided: Sequence[Swap] | None = None) -> Outcome:
    """What became of a batch, by the swaps of now or those that are `decided`."""
    from coset.batches.backfills.swaps import in_force  # noqa: PLC0415

    if (verdict := ledger.verdict(planned.batch)) is not None:
        backfilled = planned.batch in in_force(ledger.store, planned.pipeline, decided).exchanged()
        return outcome_of_batch(verdict, (), backfilled=backfilled)
    last = ledger.attempt(planned.batch) - 1
    failed = found_by(ledger.failed_check(planned.batch, last)) if last >= 0 else ()
    return outcome_of_batch(None, failed)


def clean(pipeline: Pipeline, store_root: str) -> str:
    """Remove the files of decided batches that no verdict names."""
    from coset.batches.sweeping import sweep  # noqa: PLC0415

    return f"Removed {sweep(pipeline, store_at(store_root))}"


def _failed(ledger: Ledger, planned: Plan, shown: Shown) -> Iterator[str]:
    """The findings of the last attempt in Markdown, if its checks failed: each with its offenders and the next step."""
    last = ledger.attempt(planned.batch) - 1
    for found in found_by(ledger.failed_check(planned.batch, last)) if last >= 0 else ():
        what, *offenders = found.what.splitlines()
        yield f"- {in_markdown(f'Attempt {last} failed: {what}')}"
        for line in (*(one.strip(" -") for one in offenders), f"Next: {shown.says(found.next)}"):
            yield f"  - {in_markdown(line)}"


def _decided(verdict: Verdict) -> str:
    when = f", {as_time(verdict.taken.ended)}" if verdict.taken else ""
    return f"Batch {verdict.batch} is decided: {verdict.decision}, attempt {verdict.attempt} ({verdict.why}){when}"


def _published(commit: Commit) -> str:
    tables = ", ".join(f"{published.table} at version {published.version}" for published in commit.tables)
    return f"Batch {commit.batch} is published: {tables}"


def _coverage(coverage: pd.DataFrame) -> Section:
    sums = {
        "planned": "records planned",
        "taken": "taken",
        "dropped": "dropped without a key",
        "set_aside": "set aside",
        "nulls": "taken without a key",
        "keys": "keys",
    }
    if not coverage["set_aside"].any():
        del sums["set_aside"]
    streams = coverage.groupby(["stage", "input"], sort=False)[[*sums]].sum().reset_index()
    rows = tuple((row.stage, row.input, *(f"{getattr(row, name):,}" for name in sums)) for row in streams.itertuples())
    return Section("Coverage", ("stage", "input", *sums.values()), rows, ())


def _apart(read: Iterable[TaskReceipt]) -> Iterator[Section]:
    """The records with event times that do not count, by step."""
    found: dict[str, tuple[int, list[tuple[str, str]]]] = {}
    for apart in (apart for task in read for apart in task.apart):
        records, first = found.get(apart.step, (0, []))
        found[apart.step] = records + apart.records, [*first, *apart.first]
    if found:
        rows = tuple(
            (step, f"{records:,}", ", ".join(f"{key} at {time}" for key, time in sorted(first)[:_APART_SHOWN]))
            for step, (records, first) in sorted(found.items())
        )
        notes = (
            "A time that is infinite or too far ahead of the plan's day does not count: see docs/internals/state.md.",
        )
        yield Section("Times that do not count", ("step", "records", "the first of them"), rows, notes)


def _moved(moved: pd.DataFrame) -> Iterator[Section]:
    """The output of tasks for later tasks. The spared records are the plan's."""
    if moved.empty:
        return
    columns = ("exchange or result", "records of", "left by stage", "records", "size", "records spared, as planned")
    rows = tuple(
        (row.name, row.step, row.stage, f"{row.records:,}", size(row.bytes), _known(row.spared))
        for row in moved.itertuples(index=False)
    )
    yield Section("Moved", columns, rows, ())


def _known(count: float | None) -> str:
    return "–" if count is None or math.isnan(count) else f"{int(count):,}"
