"""A backfill piece by piece, for the Airflow DAG: between pieces goes nothing but its number.

Each says in a sentence or on a page what it did, and may be run again at any time, by anyone.
"""

from __future__ import annotations

from batches.backfills import steps
from batches.backfills.backfill import Backfill, backfill
from batches.backfills.pages import comparison_page, preview_page
from batches.backfills.planning import planned_again
from batches.backfills.steps import Asked
from batches.backfills.swaps import finish, swaps
from batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.documents.store import S3Store, Store
from partitioning.model.backfill import Swapped, Turn
from partitioning.values import Value


class Compared(Value, frozen=True):
    """The page for the reviewer, the digest that is approved with it, and whether anybody has to."""

    page: str
    digest: str
    needs_approval: bool


def preview(pipeline: Pipeline, root: str, asked: Asked) -> str:
    """What the backfill would run, on a page. Stores nothing; raises Refused as `steps.preview`."""
    return preview_page(pipeline.name, steps.preview(pipeline, S3Store(root), asked))


def begin(pipeline: Pipeline, root: str, asked: Asked) -> int:
    """The number of the backfill that was asked for. Raises Refused as `steps.begin`."""
    return steps.begin(pipeline, S3Store(root), asked).number


def next_batch(pipeline: Pipeline, root: str, number: int) -> tuple[BatchRef, str]:
    """The batch that is to be run, its plan stored, and a sentence; the last one, if all have run.

    Only once a batch has run the next one can be planned: it goes on from what that one keeps.
    """
    store = S3Store(root)
    request = backfill(store, pipeline.name, number)
    ledger, batch = request.ledger(store), next(iter(_left(store, request)), request.batches[-1])
    plan = ledger.plan(batch) if ledger.has_plan(batch) else None
    if plan is None:
        plan = ledger.put_plan(planned_again(pipeline, ledger, batch, request.settings))
    return BatchRef.of(store, plan), f"{request}; now batch {batch}: {plan.records:,} records"


def batches_left(pipeline: str, root: str, number: int) -> tuple[int, ...]:
    """The batches that have not run yet."""
    store = S3Store(root)
    return _left(store, backfill(store, pipeline, number))


def compare(pipeline: str, root: str, number: int) -> Compared:
    """Compare what the backfill gives with what readers see, unless they see it already.

    Raises as `steps.comparison`.
    """
    store = S3Store(root)
    request = backfill(store, pipeline, number)
    done = _decided_last(store, request, Turn.SWAP)
    found = (steps.compared(store, request) if done else None) or steps.comparison(store, request)
    differs = not found.same or bool(found.changes)
    return Compared(comparison_page(store, request, found), digest(found), differs and done is None)


def swap(pipeline: str, root: str, number: int, approved: str, who: str) -> str:
    """Let readers see the backfill's rows; `who` approved the comparison of that digest, if somebody had to."""
    store = S3Store(root)
    request = backfill(store, pipeline, number)
    done = _decided_last(store, request, Turn.SWAP, approved)
    why = ", ".join(part for part in (request.why, f"approved by {who}" if who else "") if part)
    return f"{request} is in place: {_versions(done or steps.swap(store, request, approved, why))}"


def undo(pipeline: str, root: str, number: int, why: str) -> str:
    """Let readers see the rows that there were before the backfill."""
    store = S3Store(root)
    request = backfill(store, pipeline, number)
    done = _decided_last(store, request, Turn.UNDO)
    return f"{request} is taken back: {_versions(done or steps.undo(store, request, why))}"


def _left(store: Store, request: Backfill) -> tuple[int, ...]:
    ledger = request.ledger(store)
    return tuple(batch for batch in request.batches if not ledger.has_plan(batch) or ledger.verdict(batch) is None)


def _decided_last(store: Store, request: Backfill, to: Turn, approved: str | None = None) -> Swapped | None:
    """The receipt of a turn that was decided before, and is finished now if it was not; None if it is to be decided."""
    newest = next(reversed(list(swaps(store, request.pipeline))), None)
    if newest is None or (newest.backfill, newest.turn) != (request.number, to):
        return None
    return finish(store, request.pipeline) if approved in (None, newest.approved) else None


def _versions(swapped: Swapped) -> str:
    tables = ", ".join(f"{table} at version {version}" for table, version in swapped.tables.items())
    return tables or "no table had to change"
