"""Batches on the command line: run them, report on them, give one up. The steps are those of the Airflow DAG."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from coset.batches import steps
from coset.batches.attempt import Attempt
from coset.batches.interpreter import run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.step_list import PLAN
from coset.batches.sweeping import left_over, sweep
from coset.batches.tables import compaction
from coset.batches.telling import from_environment
from coset.batches.watch import Watch
from coset.cli import pipelines, plans
from coset.cli.output import check_reason, console, say, show, show_json, show_page, step
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.occasion import as_iso
from partitioning.model.plan import Plan
from partitioning.model.verdict import Commit, Verdict


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to plan a new batch, what runs its task groups, where its Data Docs go, and if one that waits is tried."""

    settings: Settings
    runner: Runner
    docs: Path
    again: bool


def run(named: str, root: str, options: RunOptions, *, until_done: bool, as_json: bool) -> None:
    """Run the next batch, or all until nothing is left; print each one's report."""
    pipeline, done = pipelines.load(named), list[dict[str, Any]]()
    sentence = ""
    watch = Watch(pipeline.name, pipeline.owner, root, from_environment(), pipelines.shown(), _told)
    with watch.over(), options.runner as runner:
        while not done or until_done:
            ref, sentence = _plan(pipeline, root, options)
            if ref is None:
                watch.passed(published=False)
                break
            run_batch(ref, runner, options.docs, step, show_page=None if as_json else _show_report)
            watch.passed(published=True)
            done.append(_outcome(*ref.load()))
    if as_json:
        show_json({"sentence": sentence, "batches": done})
    elif not done or until_done:
        show(sentence)


def report(named: str, root: str, number: int | None, docs: Path, html: Path | None, *, as_json: bool) -> None:
    """Print what became of a batch, and write its page to a file if one is named. Raises Refused if there is none."""
    store = store_at(root)
    ledger = Ledger(store, pipelines.load(named).name)
    plan = ledger.standing().plan if number is None else plans.stored_plan(ledger, number)
    if plan is None:
        raise Refused(
            Finding(
                Kind.BATCH_UNKNOWN,
                f"{ledger.pipeline} has no batch yet",
                ledger.uri(f"{ledger.pipeline}/plans/"),
                ("make one: ", Run(ledger.pipeline)),
                about(pipeline=ledger.pipeline),
            )
        )
    if html is not None:
        from coset.cli.reports import save_page  # noqa: PLC0415

        save_page(ledger, plan, html)
    if as_json:
        show_json(_outcome(ledger, plan))
    else:
        show_page(steps.report(BatchRef.of(store, plan), docs, pipelines.shown()))


def abandon(named: str, root: str, why: str, *, as_json: bool) -> None:
    """Give up the open batch and say so."""
    check_reason(why, "why the batch is given up")
    verdict = steps.abandon(pipelines.load(named), root, why)
    if as_json:
        show_json({"batch": verdict.batch, "decision": verdict.decision, "why": str(verdict.why), "plan": verdict.plan})
    else:
        show(f"Batch {verdict.batch} is abandoned ({verdict.why}); the next plan takes its records")


def replan(named: str, root: str, settings: Settings, why: str, *, as_json: bool) -> None:
    """Give up the open batch, plan its records again, and say so."""
    check_reason(why, "why the batch is given up")
    abandoned, ref, sentence = steps.replan(pipelines.load(named), root, settings, why)
    if as_json:
        show_json({"abandoned": abandoned, "sentence": sentence, "batch": ref.load()[1].batch if ref else None})
    else:
        show(abandoned, sentence, f"Next: coset run {named}")


def clean(named: str, root: str, *, dry_run: bool, as_json: bool) -> None:
    """Remove the files that no verdict names, and say which."""
    pipeline, store = pipelines.load(named), store_at(root)
    unnamed = left_over(pipeline, store) if dry_run else sweep(pipeline, store)
    if as_json:
        files = [{"uri": f"{root}/{file.key}", "bytes": file.size} for file in unnamed.files]
        damaged = [finding.plain(pipelines.shown()) for finding in unnamed.damaged]
        show_json({"removed": not dry_run, "files": files, "open": unnamed.open, "damaged": damaged})
        return
    done = ("There are" if dry_run else "Removed") if unnamed.files else "Nothing to remove: there are"
    show(f"{done} {unnamed}", *map(str, unnamed.damaged))


def compact(named: str, root: str, keep_days: int, *, across: bool, as_json: bool) -> None:
    """Compact the result tables and say what was done to each."""
    compacted = compaction.compact(pipelines.load(named), store_at(root), timedelta(days=keep_days), across=across)
    if as_json:
        show_json([asdict(table) for table in compacted])
    else:
        show(*(map(str, compacted) if compacted else ["Nothing to compact: no table is there yet"]))


def _told(sentence: str) -> None:
    say(console(stderr=True), sentence)


def _show_report(page: str) -> None:
    show_page(f"{page}\n")


def _plan(pipeline: Pipeline, root: str, options: RunOptions) -> tuple[BatchRef | None, str]:
    with step(PLAN.name) as said:
        ref, sentence = steps.plan(pipeline, root, options.settings, again=options.again)
        said.append(sentence)
    if ref is not None:
        for name in steps.group_labels(ref).values():
            say(console(stderr=True), f"       {name}")
    return ref, sentence


def _outcome(ledger: Ledger, plan: Plan) -> dict[str, Any]:
    """What is stored of a batch, for programs."""
    verdict, commit = ledger.verdict(plan.batch), ledger.commit(plan.batch)
    attempt = Attempt(ledger, plan, verdict.attempt if verdict else ledger.attempt(plan.batch))
    return {
        "pipeline": plan.pipeline,
        "batch": plan.batch,
        "uri": ledger.uri(ledger.key("plans", plan.batch)),
        "outcome": steps.outcome(ledger, plan),
        "records": plan.records,
        "ranges": [str(offsets) for offsets in plan.ranges()],
        "ran": _ran(attempt),
        "warnings": [found.what for found in steps.warnings(ledger, plan, attempt.number)],
        "verdict": _verdict(verdict),
        "tables": _tables(commit),
    }


def _ran(attempt: Attempt) -> dict[str, Any] | None:
    """When its task groups ran, and what they took; None if that is not known."""
    if (effort := attempt.effort) is None:
        return None
    cpu = effort.cpu_milliseconds
    return {
        "began": as_iso(effort.began),
        "ended": as_iso(effort.ended),
        "seconds": effort.seconds,
        "cpu_seconds": None if cpu is None else cpu / 1000,
    }


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    taken = None if verdict.taken is None else {"at": as_iso(verdict.taken.ended), "by": verdict.taken.user}
    return {"decision": verdict.decision, "attempt": verdict.attempt, "why": str(verdict.why), "taken": taken}


def _tables(commit: Commit | None) -> list[dict[str, Any]] | None:
    """The published tables and their Delta versions; None as long as the publication is not finished."""
    return None if commit is None else [{"table": table.table, "version": table.version} for table in commit.tables]
