"""A backfill piece by piece, for the Airflow DAG: between pieces goes nothing but its number.

Each says in a sentence or on a page what it did, and may be run again at any time, by anyone.
"""

from __future__ import annotations

from pathlib import Path

from coset.batches.backfills import steps
from coset.batches.backfills.backfill import backfill
from coset.batches.backfills.pages import comparison_page, preview_sections
from coset.batches.backfills.steps import Asked
from coset.batches.backfills.swaps import hindrances, in_place, swaps, taken_back
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import SwapAsking
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from partitioning.sections import markdown
from partitioning.values import Value


class Compared(Value, frozen=True):
    """The page for the reviewer, the digest that is approved with it, whether anybody has to, and what hinders it from
    being put in place, whoever approves it. So many swaps of the pipeline were `decided` before."""

    page: str
    digest: str
    needs_approval: bool
    hindrances: tuple[Finding, ...]
    decided: int


def preview(pipeline: Pipeline, root: str, asked: Asked) -> str:
    """What the backfill would run, on a page. Stores nothing; raises Refused as `steps.preview`."""
    store = store_at(root)
    return markdown(preview_sections(store, pipeline.name, steps.preview(pipeline, store, asked)))


def begin(pipeline: Pipeline, root: str, asked: Asked, who: str) -> int:
    """The number of the backfill that `who` asked for. Raises Refused as `steps.begin`."""
    return steps.begin(pipeline, store_at(root), asked, who).number


def next_batch(pipeline: Pipeline, root: str, number: int) -> tuple[BatchRef, str]:
    """The batch that is to be run, its plan stored, and a sentence; the last one, if all have run.

    Only once a batch has run the next one can be planned: it goes on from what that one keeps. Raises Refused as
    `steps.planned`.
    """
    store = store_at(root)
    request = backfill(store, pipeline.name, number)
    batch = next(iter(_left(store, request)), request.batches[-1])
    plan = steps.planned(pipeline, store, request, batch)
    return BatchRef.of(store, plan), f"{request}; now batch {batch}: {plan.records:,} records"


def batches_left(pipeline: str, root: str, number: int) -> tuple[int, ...]:
    """The batches that have not run yet."""
    store = store_at(root)
    return _left(store, backfill(store, pipeline, number))


def compare(pipeline: str, root: str, number: int, docs: Path | None = None) -> Compared:
    """Compare what the backfill gives with what readers see, unless they see it already.

    Somebody has to approve what was taken back, whatever it is. With `docs`, its page is in Data Docs too. Raises as
    `steps.comparison`.
    """
    store = store_at(root)
    request = backfill(store, pipeline, number)
    found = steps.comparison(store, request, docs)
    decided, back = len(list(swaps(store, pipeline))), taken_back(store, request)
    needs = (found.needs_approval or back is not None) and not in_place(store, request)
    hindered = hindrances(store, request, found)
    return Compared(comparison_page(store, request, found, hindered), digest(found), needs, hindered, decided)


def swap(pipeline: str, root: str, number: int, approved: str, decided: int, who: str) -> str:
    """Let readers see the backfill's rows; `who` approved the comparison of that digest, if somebody had to, after so
    many swaps were `decided`.

    Raises Refused if it was taken back since, and as `steps.swap`.
    """
    store = store_at(root)
    request = backfill(store, pipeline, number)
    if (back := taken_back(store, request)) and back.number >= decided:
        what = f"{back.who} took it back at {back.at}: {back.why or 'no reason was given'}"
        raise Refused(
            Finding(
                Kind.BACKFILL_TURN,
                what,
                str(request),
                SwapAsking(pipeline, number, approved),
                about(backfill=request.name, swap=back.number),
            )
        )
    return f"{request} is in place: {steps.swap(store, request, approved, request.why, who)}"


def undo(pipeline: str, root: str, number: int, why: str, who: str) -> str:
    """Let readers see the rows that there were before the backfill; `who` decided it."""
    store = store_at(root)
    request = backfill(store, pipeline, number)
    return f"{request} is taken back: {steps.undo(store, request, why, who)}"


def _left(store: Store, request: Backfill) -> tuple[int, ...]:
    ledger = Ledger(store, request.name)
    return tuple(batch for batch in request.batches if not ledger.has_plan(batch) or ledger.verdict(batch) is None)
