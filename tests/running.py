"""Batches run by the product's own runner, in this very process: no Spark, no other processes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from coset.batches import publication, steps
from coset.batches.attempt import Attempt
from coset.batches.auditing.audit import audit
from coset.batches.interpreter import run_batch, silently
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role, TaskReceipt
from partitioning.model.verdict import Judged


def next_batch(pipeline: Pipeline, root: str, settings: Settings = DEFAULTS, *, again: bool = False) -> BatchRef:
    """The next batch, planned; there is one."""
    ref, said = steps.plan(pipeline, root, settings, again=again)
    assert ref is not None, said
    return ref


def run_groups(ref: BatchRef) -> None:
    """Run every task group of a batch."""
    _, plan = ref.load()
    with Local(processes=1) as runner:
        for group in plan.groups:
            runner.group(ref, group.group)


def run_and_publish(ref: BatchRef, docs: Path | None = None, runner: Runner | None = None) -> None:
    """Do all that is to be done for a batch, by another runner if one is given. Raises what its steps raise.

    Without `docs` no page is made.
    """
    with runner or Local(processes=1) as used:
        run_batch(ref, used, docs, silently)


def moved(store: Store, plan: Plan) -> int:
    """How many records of a published batch went through its exchanges."""
    attempt = Attempt.published(Ledger(store, plan.pipeline), plan)
    assert attempt
    return sum(file.records for task in attempt.tasks for file in task.left(Role.EXCHANGE))


def run_and_publish_unjudged(ref: BatchRef) -> None:
    """The same without Great Expectations: the audit's own figures have to be right."""
    run_groups(ref)
    publish_unjudged(*ref.load())


def publish_unjudged(ledger: Ledger, plan: Plan) -> None:
    """Publish a batch that has run: the audit's own figures have to be right."""
    attempt = ledger.attempt(plan.batch)
    tables = audit(ledger, plan, attempt)
    check_coverage(tables.coverage)
    check_production(tables.produced)
    check_closed(tables.closed)
    publication.decide(Attempt(ledger, plan, attempt), Judged(0, 0, 0, 0, 0, 0))
    publication.publish(ledger, plan)


def check_coverage(coverage: pd.DataFrame) -> None:
    """All that was planned, or written by others, was read and taken once, by whom it belongs to."""
    assert (coverage["digest_found"] == coverage["digest_planned"]).all()
    assert (coverage["taken"] + coverage["dropped"] + coverage["set_aside"] == coverage["planned"]).all()
    assert not coverage[["disorder", "foreign", "stray", "copies_differ"]].to_numpy().any()


def check_production(produced: pd.DataFrame) -> None:
    """What was left is what was made and, where records only move, what was taken."""
    assert produced["counted"].all()
    assert (produced["made"] == produced["left"]).all()
    assert (produced["taken"].isna() | (produced["taken"] == produced["left"])).all()


def check_closed(closed: pd.DataFrame) -> None:
    """What was over had met a partner or was given alone."""
    assert (closed["over_rows"] == closed["met_rows"] + closed["alone_rows"]).all()


def task_receipts(ref: BatchRef, attempt: int = 0) -> list[TaskReceipt]:
    """What the tasks of all groups say, by stage and number."""
    ledger, plan = ref.load()
    receipts = [ledger.receipt(plan.batch, attempt, group.group) for group in plan.groups]
    return sorted((task for receipt in receipts if receipt for task in receipt.tasks), key=lambda task: task.task)
