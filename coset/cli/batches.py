"""Batches on the command line: run them, report on them, give one up. The steps are those of the Airflow DAG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from coset.batches import reported, steps
from coset.batches.attempt import Attempt
from coset.batches.interpreter import PLAN, run_batch
from coset.batches.pace import warned
from coset.batches.planning import agreed
from coset.batches.ref import BatchRef, LoadedBatch
from coset.batches.runners.runner import Runner, check_runs
from coset.batches.sweeping import left_over, sweep
from coset.batches.tables import compaction
from coset.batches.watch import Watch, from_environment
from coset.cli import pipelines, plans
from coset.cli.other_stores import check_meant
from coset.cli.output import Answer, check_reason, console, counted, doing, say, show, step
from coset.cli.reports import save_page
from coset.project.project import scheduled_run
from coset.reports.timeliness import ScheduledBy, ScheduledRun
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding, Refused
from partitioning.model.journal import as_iso
from partitioning.model.plan import Plan
from partitioning.model.verdict import Verdict
from partitioning.values import replace


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to plan a new batch, what runs its task groups, where its Data Docs go, if one that waits is tried, and if a
    new store is meant."""

    settings: Settings
    runner: Runner
    docs: Path
    again: bool
    new_store: bool


def run(named: str, root: str, options: RunOptions, *, until_done: bool) -> Answer:
    """Run the next batch, or all until nothing is left; the report of each is shown when it is done."""
    pipeline = pipelines.load(named)
    check_meant(pipeline.name, root, Run(pipeline.name), new=options.new_store)
    watch = _watch(pipeline, root)
    with watch.over(), options.runner as runner:
        ran = _run(pipeline, root, options, runner, watch, until_done=until_done)
    return Answer(ran, [ran["sentence"]] if not ran["batches"] or until_done else [])


def run_all(root: str, options: RunOptions) -> Answer:
    """Run the batches of all pipelines of the project until nothing is left. One that fails stops no other."""
    ran, findings = list[dict[str, Any]](), list[Finding]()
    of_project = pipelines.of_project()
    with options.runner as runner, counted(len(of_project), "pipelines") as done_with:
        for place, found in of_project.items():
            try:
                if isinstance(found, Refused):
                    raise found
                show(f"Pipeline {found.name}")
                check_meant(found.name, root, Run(found.name), new=options.new_store)
                watch = _watch(found, root)
                with watch.over():
                    done = _run(found, root, options, runner, watch, until_done=True)
                show(done["sentence"], "")
                ran.append({"pipeline": found.name} | done)
            except CosetError as error:
                findings += error.saying(partial(_in, place)).findings
            done_with(1)
    failed = Refused(*findings) if findings else None
    return Answer({"pipelines": ran}, [] if ran or findings else [pipelines.none_of_project()], failed)


def _in(place: str, finding: Finding) -> Finding:
    return replace(finding, what=f"{place}: {finding.what}")


def report(named: str, root: str, number: int | None, docs: Path, html: Path | None) -> Answer:
    """What became of a batch, with the exit code of that; its page is written to a file if one is named.

    Raises Refused if there is no batch.
    """
    store = store_at(root)
    ledger = Ledger(store, pipelines.load(named).name)
    plan = plans.of_batch(ledger, number)
    written = [] if html is None else [save_page(ledger, plan, html)]
    text = _reported(BatchRef.of(store, plan), docs, written)
    return Answer(partial(_outcome, ledger, plan), text, exit_code=steps.outcome(ledger, plan).exit_code)


def _reported(batch: BatchRef, docs: Path, written: Sequence[str]) -> Iterator[str]:
    yield from written
    yield from steps.report(batch, docs, pipelines.shown()).split("\n")


def abandon(named: str, root: str, why: str, docs: Path) -> Answer:
    """Give up the open batch."""
    check_reason(why, "why the batch is given up")
    verdict = steps.abandon(pipelines.load(named), root, why, docs)
    value = {"batch": verdict.batch, "decision": verdict.decision, "why": str(verdict.why), "plan": verdict.plan}
    return Answer(value, [f"Batch {verdict.batch} is abandoned ({verdict.why}); the next plan takes its records"])


def replan(named: str, root: str, settings: Settings, why: str, docs: Path) -> Answer:
    """Give up the open batch and plan its records again."""
    check_reason(why, "why the batch is given up")
    pipeline = pipelines.load(named)
    abandoned, ref, sentence = steps.replan(pipeline, root, settings, why, docs)
    value = {"abandoned": abandoned, "sentence": sentence, "batch": ref.load()[1].batch if ref else None}
    then = pipelines.shown().line(Run(pipeline.name))
    return Answer(value, [abandoned, sentence, f"Next: {then}"])


def clean(named: str, root: str, *, dry_run: bool, everything: bool) -> Answer:
    """Remove the files that no verdict names."""
    pipeline, store = pipelines.load(named), store_at(root)
    with doing("clean"):
        unnamed = (left_over if dry_run else sweep)(pipeline, store, everything=everything, counting=counted)
    files = ({"uri": f"{root}/{file.key}", "bytes": file.size} for file in unnamed.files)
    value = {"removed": not dry_run, "files": files, "open": unnamed.open, "damaged": pipelines.told(unnamed.damaged)}
    done = ("There are" if dry_run else "Removed") if unnamed.files else "Nothing to remove: there are"
    return Answer(value, [f"{done} {unnamed}", *map(str, unnamed.damaged)])


def compact(named: str, root: str, keep_days: int, *, across: bool) -> Answer:
    """Compact the result tables. Raises Refused too if these do not hold what was published."""
    pipeline, store, keep = pipelines.load(named), store_at(root), timedelta(days=keep_days)
    with doing("compact"):
        agreed(pipeline, store)
        compacted = compaction.compact(pipeline, store, keep, across=across, counting=counted)
    return Answer(compacted, map(str, compacted) if compacted else ["Nothing to compact: no table is there yet"])


def _watch(pipeline: Pipeline, root: str) -> Watch:
    return Watch(pipeline.name, pipeline.owner, root, from_environment(), pipelines.elsewhere(), _told)


def _run(
    pipeline: Pipeline, root: str, options: RunOptions, runner: Runner, watch: Watch, *, until_done: bool
) -> dict[str, Any]:
    check_runs(pipeline.steps, pipeline.name, options.runner)
    done, sentence = list[dict[str, Any]](), ""
    while not done or until_done:
        batch, sentence = _plan(pipeline, root, options)
        if batch is None:
            watch.passed(published=False)
            break
        with counted(len(batch.plan.groups), "task groups", "run group", "wait for group"):
            run_batch(batch, runner, options.docs, step, show_page=_show_page, counting=counted)
        watch.passed(published=True)
        done.append(_outcome(*batch.load()))
    return {"sentence": sentence, "batches": done}


def _told(sentence: str) -> None:
    say(console(stderr=True), sentence)


def _show_page(page: str) -> None:
    """Show a page that has been made for people, and a blank line."""
    show(*page.split("\n"), "")


def _plan(pipeline: Pipeline, root: str, options: RunOptions) -> tuple[LoadedBatch | None, str]:
    with step(PLAN.name) as said:
        batch, sentence = steps.take_up(pipeline, root, options.settings, again=options.again)
        said.append(sentence)
    _note_run(pipeline.name, root, up_to_date=batch is None)
    if batch is not None:
        for name in steps.group_labels(batch).values():
            say(console(stderr=True), f"       {name}")
    return batch, sentence


def _note_run(pipeline: str, root: str, *, up_to_date: bool) -> None:
    """Note that the pipeline runs, and when it does next as the project says."""
    now, schedule = datetime.now(UTC), pipelines.here().environment.schedule_of(pipeline)
    if schedule:
        run = scheduled_run(schedule, now)
    else:
        run = ScheduledRun(int(now.timestamp() * 1000), None, ScheduledBy.PROJECT)
    reported.run_began(pipeline, root, run, up_to_date=up_to_date)


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
        "warnings": [found.what for found in warned(ledger, plan.batch, attempt.number)],
        "verdict": _verdict(verdict),
        # None as long as the publication is not finished.
        "tables": [{"table": each.table, "version": each.version} for each in commit.tables] if commit else None,
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
