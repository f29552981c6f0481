"""Batches on the command line: run them, report on them, give one up. The steps are those of the Airflow DAG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batches import publication
from batches import steps as batch
from batches.runners import spark_submit as submission
from cli import pipelines, plans
from cli.output import console, show, show_json, step
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan
from partitioning.model.verdict import Commit, Verdict


@dataclass(frozen=True, slots=True)
class Way:
    """How to plan a new batch, where Spark runs it, and where its Data Docs go."""

    settings: Settings
    master: str
    docs: Path


def run(named: str, root: str, way: Way, *, until_done: bool, as_json: bool) -> None:
    """Run the next batch, or all until nothing is left; print each one's report."""
    pipeline, done = pipelines.load(named), list[dict[str, Any]]()
    sentence = ""
    while not done or until_done:
        ref, sentence = _plan(pipeline, root, way.settings)
        if ref is None:
            break
        _run_batch(ref, way)
        done.append(_outcome(*ref.load()))
        if not as_json:
            show(batch.report(ref, way.docs), "")
    if as_json:
        show_json({"sentence": sentence, "batches": done})
    elif not done or until_done:
        show(sentence)


def report(named: str, root: str, number: int | None, docs: Path, *, as_json: bool) -> None:
    """Print what became of a batch. Raises Refused if there is none."""
    store = S3Store(root)
    ledger = Ledger(store, pipelines.load(named).name)
    plan = ledger.standing().plan if number is None else plans.stored_plan(ledger, number)
    if plan is None:
        raise Refused(
            Finding(
                f"{ledger.pipeline} has no batch yet", ledger.uri(f"{ledger.pipeline}/plans/"), "make one: `coset run`"
            )
        )
    if as_json:
        show_json(_outcome(ledger, plan))
    else:
        show(batch.report(batch.ref(store, plan), docs))


def abandon(named: str, root: str, why: str, *, as_json: bool) -> None:
    """Give up the open batch and say so."""
    if not why.strip():
        raise Refused(Finding("the reason is empty", "--why", "say in some words why the batch is given up"))
    verdict = publication.abandon(Ledger(S3Store(root), pipelines.load(named).name), why)
    if as_json:
        show_json({"batch": verdict.batch, "decision": verdict.decision, "why": verdict.why, "plan": verdict.plan})
    else:
        show(f"Batch {verdict.batch} is abandoned ({verdict.why}); the next plan takes its records")


def _plan(pipeline: Pipeline, root: str, settings: Settings) -> tuple[batch.BatchRef | None, str]:
    with step("plan") as said:
        ref, sentence = batch.plan(pipeline, root, settings)
        said.append(sentence)
    if ref is not None:
        for name in batch.group_labels(ref).values():
            console(stderr=True).print(f"       {name}", markup=False)
    return ref, sentence


def _run_batch(ref: batch.BatchRef, way: Way) -> None:
    for group in batch.group_labels(ref):
        with step(f"run group {group}") as said:
            said.append(submission.submit(ref.plan_uri, ref.digest, group, way.master))
    with step("audit") as said:
        said.append(batch.audit(ref))
    with step("check") as said:
        said.append(batch.check(ref, way.docs))
    with step("publish") as said:
        said.append(batch.publish(ref))


def _outcome(ledger: Ledger, plan: Plan) -> dict[str, Any]:
    """What is stored of a batch, for programs."""
    verdict, commit = ledger.verdict(plan.batch), ledger.commit(plan.batch)
    return {
        "pipeline": plan.pipeline,
        "batch": plan.batch,
        "uri": ledger.uri(ledger.key("plans", plan.batch)),
        "records": plan.records,
        "ranges": [str(each) for each in plan.ranges()],
        "verdict": _verdict(verdict),
        "tables": _tables(commit),
    }


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"decision": verdict.decision, "attempt": verdict.attempt, "why": verdict.why}


def _tables(commit: Commit | None) -> list[dict[str, Any]] | None:
    """The published tables and their Delta versions; None as long as the publication is not finished."""
    return None if commit is None else [{"table": each.table, "version": each.version} for each in commit.tables]
