"""The steps of a batch, for the Airflow DAG and the command line alike.

Each step says in a sentence or a page what it did, and may be run again at any time, by anyone: what is done is
found done. Between steps goes nothing but a `BatchRef`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from msgspec import to_builtins

from coset.batches.attempt import Attempt
from coset.batches.ref import BatchRef
from coset.batches.waiting import found_by
from coset.lineage import emitting
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Replan, Shown
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.explain.explain import explain
from partitioning.explain.missing import missing
from partitioning.model.occasion import as_time
from partitioning.model.outcome import Outcome, outcome_of_batch
from partitioning.model.plan import Plan, TaskGroup
from partitioning.model.receipt import TaskReceipt
from partitioning.model.verdict import Commit, Decision, Verdict
from partitioning.sections import Section, markdown, size
from partitioning.texts import in_markdown

if TYPE_CHECKING:
    import pandas as pd

_APART_SHOWN = 5
# Airflow keeps 250 characters of a label.
_LABEL_WIDTH = 200


def plan(
    pipeline: Pipeline, store_root: str, settings: Settings = DEFAULTS, *, again: bool = False
) -> tuple[BatchRef | None, str]:
    """The batch to work on, its plan stored, and how that came about; None if there is nothing to do.

    Raises Refused as `planning.take_up`.
    """
    from coset.batches.planning import take_up  # noqa: PLC0415  Airflow parses this file

    store = store_at(store_root)
    taken = take_up(pipeline, store, settings, again=again)
    if taken.plan is not None:
        emitting.tell_start(Ledger(store, taken.plan.pipeline), taken.plan)
    return (BatchRef.of(store, taken.plan) if taken.plan else None), taken.sentence


def replan(pipeline: Pipeline, store_root: str, settings: Settings, why: str) -> tuple[str, BatchRef | None, str]:
    """Give up the open batch and plan its records again; what was given up, then as `plan`.

    Raises Refused if no batch is open, if its publication is decided, or as `plan`; the batch stays given up then.
    """
    verdict = abandon(pipeline, store_root, why)
    return f"Batch {verdict.batch} is abandoned ({verdict.why})", *plan(pipeline, store_root, settings)


def abandon(pipeline: Pipeline, store_root: str, why: str) -> Verdict:
    """Give up the open batch, and say so in the store's Data Docs. Raises as `publication.abandon`."""
    from coset.batches import publication  # noqa: PLC0415
    from coset.reports import batch_index  # noqa: PLC0415

    store = store_at(store_root)
    ledger = Ledger(store, pipeline.name)
    verdict = publication.abandon(ledger, why)
    if (planned := ledger.plan(verdict.batch)) is not None:
        emitting.tell_given_up(ledger, planned, verdict)
    when = as_time(verdict.taken.ended) if verdict.taken else ""
    batch_index.give_up(store, pipeline.name, verdict.batch, verdict.attempt, why, when)
    return verdict


def group_labels(batch: BatchRef) -> dict[int, str]:
    """What each task group is called where people see it, by its number."""
    _, planned = batch.load()
    return {group.group: label(group) for group in planned.groups}


def groups_of_wave(batch: BatchRef, wave: int) -> list[TaskGroup]:
    """The task groups of one wave; none, if the plan does not have so many."""
    _, planned = batch.load()
    return [group for group in planned.groups if group.wave == wave]


def plan_page(batch: BatchRef) -> str:
    """The plan on a page of Markdown, and what changed since the batch before."""
    ledger, planned = batch.load()
    return markdown(explain(planned, ledger.plan(planned.batch - 1) if planned.batch else None))


def label(group: TaskGroup) -> str:
    """A task group for people: `group 1: flights+planes/2 3 (12.0 MB)`."""
    by_stage = groupby(group.tasks, key=lambda task: task.stage)
    named = (f"{stage}/{' '.join(str(each.task) for each in tasks)}" for stage, tasks in by_stage)
    tasks = shorten(" ".join(named), _LABEL_WIDTH, placeholder=" …")
    return f"group {group.group}: {tasks} ({group.bytes / 1e6:.1f} MB)"


def audit(batch: BatchRef) -> str:
    """Make the audit tables from the receipts, if all planned files still are as they were before they were read.

    Raises Refused if a receipt is missing or is of another plan, and if a file is not as it was planned: nobody knows
    which of the two was read, so the attempt is closed then, and the next run makes another from the same plan. So it
    is if a receipt is of a version whose digests were others.
    """
    from coset.batches import audit as auditing  # noqa: PLC0415
    from coset.sources.pinned import not_as_planned  # noqa: PLC0415
    from partitioning.documents.receipts import receipts, without_digests  # noqa: PLC0415

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
        closed = canonical({"findings": to_builtins(findings)})
        ledger.close_attempt(planned.batch, attempt, closed)
        emitting.tell_failure(ledger, planned, attempt, closed)
        raise Refused(*findings)
    tables = auditing.audit_of(ledger, planned, attempt, read)
    coverage = tables.coverage
    return (
        f"Batch {planned.batch}, attempt {attempt}, is audited: {planned.records:,} records planned, "
        f"{int(coverage['taken'].sum()):,} taken, {int(coverage['dropped'].sum()):,} dropped for want of a key, "
        f"{len(tables.violations):,} violations"
    )


def check(batch: BatchRef, docs_folder: Path) -> str:
    """Let Great Expectations judge the attempt and, if it passes, decide to publish it.

    Data Docs are written below `docs_folder` and to the store. Raises Refused with every expectation that is
    not met; the attempt is closed then, and the next run makes another from the same plan.
    """
    from coset.batches import audit as auditing  # noqa: PLC0415
    from coset.batches import publication  # noqa: PLC0415
    from coset.batches.continuity import continuity  # noqa: PLC0415
    from coset.batches.evidence import evidence  # noqa: PLC0415
    from coset.batches.kept import exchanged_since  # noqa: PLC0415
    from coset.batches.result_rows import result_rows  # noqa: PLC0415
    from coset.batches.tables.table_rows import rows_kept  # noqa: PLC0415
    from coset.reports.site import Site  # noqa: PLC0415
    from expectations.checkpoint import judge  # noqa: PLC0415

    ledger, planned = batch.load()
    if verdict := ledger.verdict(planned.batch):
        return _decided(verdict)
    if findings := tuple(exchanged_since(ledger, planned)):
        raise Refused(*findings)
    attempt = Attempt.of_open(ledger, planned)
    tables = auditing.load(ledger, planned, attempt.number)
    before = continuity(ledger, planned)
    kept = rows_kept(ledger, planned, attempt.artefacts)
    judgement = judge(
        planned,
        evidence(tables, before, kept),
        result_rows(attempt),
        attempt=attempt.number,
        site=Site(docs_folder, ledger.store),
        receipts=tuple(attempt.receipts.values()),
    )
    report = canonical(judgement.results)
    ledger.store.put(_judgement_key(planned, attempt.number), report)
    if not judgement.success:
        ledger.close_attempt(planned.batch, attempt.number, report)
        emitting.tell_failure(ledger, planned, attempt.number, report)
        raise Refused(*judgement.findings)
    return _decided(publication.decide(attempt, judgement.why)) + "".join(map(_as_warning, judgement.warnings))


def publish(batch: BatchRef) -> str:
    """Make the decided batch visible, and tell the brokers of topics.

    A swap that it may have gone on from, and that somebody left half done, is finished first: in every table the batch
    comes after it. Raises what `swaps.finish` and `publication.publish` raise.
    """
    from coset.batches import publication  # noqa: PLC0415
    from coset.batches.backfills.swap.swaps import finish  # noqa: PLC0415
    from coset.batches.mirroring import mirror  # noqa: PLC0415

    ledger, planned = batch.load()
    finish(ledger.store, planned.pipeline)
    commit = publication.publish(ledger, planned)
    emitting.tell_published(ledger, planned)
    return f"{_published(commit)}{mirror(ledger)}"


def report(batch: BatchRef, docs_folder: Path, shown: Shown = Shown()) -> str:  # noqa: B008  it is a value
    """The batch on a page of Markdown: what was read, the verdict or what the last attempt failed with, the tables and
    where the Data Docs are."""
    from coset.batches import audit as auditing  # noqa: PLC0415
    from coset.batches.broker_gaps import broker_gaps  # noqa: PLC0415

    ledger, planned = batch.load()
    verdict, commit = ledger.verdict(planned.batch), ledger.commit(planned.batch)
    sections, unread = list[Section](), list[str]()
    attempt = Attempt(ledger, planned, verdict.attempt if verdict else ledger.attempt(planned.batch))
    if verdict is not None and verdict.decision is Decision.PUBLISH:
        apart = _apart(attempt.tasks)
        try:
            tables = auditing.load_some(ledger, planned, verdict.attempt, "coverage", "moved")
            seen = broker_gaps(planned, tables["coverage"])
            sections = [_coverage(tables["coverage"]), *apart, *missing(planned, seen), *_moved(tables["moved"])]
        except Refused as refusal:
            # The batch is decided, and is not audited again.
            unread = [f"What was read is not shown: {finding.what}, {finding.where}" for finding in refusal.findings]
    found = warnings(ledger, planned, attempt.number)
    warned = [f"Warning: {' '.join(warning.what.split())}" for warning in found]
    page = docs_folder / planned.pipeline / "index.html"
    return "\n".join(
        [
            f"## {planned.pipeline}, batch {planned.batch}: {outcome(ledger, planned).shown}",
            "",
            markdown(sections),
            *((f"- Its task groups ran {attempt.effort}",) if attempt.effort else ()),
            f"- {in_markdown(_decided(verdict) if verdict else 'The batch is not decided yet')}",
            f"- {in_markdown(_published(commit) if commit else 'Nothing is published yet')}",
            *(f"- {in_markdown(told)}" for told in warned),
            *(f"- {in_markdown(told)}" for told in (unread if verdict else _failed(ledger, planned, shown))),
            f"- {in_markdown(f'The plan is {batch.plan_uri}, {batch.digest}')}",
            f"- {in_markdown(f'Data Docs: {page}')}",
        ]
    )


def warnings(ledger: Ledger, planned: Plan, attempt: int) -> tuple[Finding, ...]:
    """The unmet expectations of an attempt that are warnings, if it was judged."""
    return found_by(ledger.store.get(_judgement_key(planned, attempt)), "warnings")


def _judgement_key(planned: Plan, attempt: int) -> str:
    return f"{planned.pipeline}/audits/{planned.batch}/attempt-{attempt}/judgement.json"


def _as_warning(found: Finding) -> str:
    return f"; warning: {found.what.splitlines()[0]}"


def outcome(ledger: Ledger, planned: Plan) -> Outcome:
    """What became of a batch."""
    from coset.batches.backfills.swap.swaps import in_force  # noqa: PLC0415

    backfilled = planned.batch in in_force(ledger.store, planned.pipeline).exchanged()
    last = ledger.attempt(planned.batch) - 1
    failed = found_by(ledger.failed_check(planned.batch, last)) if last >= 0 else ()
    return outcome_of_batch(ledger.verdict(planned.batch), tuple(failed), backfilled=backfilled)


def clean(pipeline: Pipeline, store_root: str) -> str:
    """Remove the files of decided batches that no verdict names."""
    from coset.batches.sweeping import sweep  # noqa: PLC0415

    return f"Removed {sweep(pipeline, store_at(store_root))}"


def _failed(ledger: Ledger, planned: Plan, shown: Shown) -> Iterator[str]:
    """What the checks of the last attempt found, if they failed."""
    last = ledger.attempt(planned.batch) - 1
    for found in found_by(ledger.failed_check(planned.batch, last)) if last >= 0 else ():
        yield f"Attempt {last} failed: {found.what} ({found.where}). Next: {shown.says(found.next)}"


def _decided(verdict: Verdict) -> str:
    when = f", {as_time(verdict.taken.ended)}" if verdict.taken else ""
    return f"Batch {verdict.batch} is decided: {verdict.decision}, attempt {verdict.attempt} ({verdict.why}){when}"


def _published(commit: Commit) -> str:
    tables = ", ".join(f"{published.table} at version {published.version}" for published in commit.tables)
    return f"Batch {commit.batch} is published: {tables}"


def _coverage(coverage: pd.DataFrame) -> Section:
    sums = ["planned", "taken", "dropped", "nulls", "keys"]
    streams = coverage.groupby(["stage", "input"], sort=False)[sums].sum().reset_index()
    rows = tuple((row.stage, row.input, *(f"{getattr(row, name):,}" for name in sums)) for row in streams.itertuples())
    columns = ("stage", "input", "records planned", "taken", "dropped for want of a key", "taken without one", "keys")
    return Section("Coverage", columns, rows, ())


def _apart(read: Iterable[TaskReceipt]) -> Iterator[Section]:
    """The records whose times do not count, by step, if there are any."""
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
            "A time that is infinite, or too far ahead of the plan's day, does not count: see docs/internals/state.md.",
        )
        yield Section("Times that do not count", ("step", "records", "the first of them"), rows, notes)


def _moved(moved: pd.DataFrame) -> Iterator[Section]:
    """What tasks left for later ones, if they did; what was spared is as planned."""
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
