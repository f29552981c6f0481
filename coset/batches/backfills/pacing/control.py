"""Control: a backfill that is paused starts no task group until somebody lets it go on; one that is cancelled never.

A pause is a hint for those at work. That a backfill is cancelled is decided among the swaps, so that either counts.
"""

from __future__ import annotations

from typing import ClassVar

from coset.batches.backfills.swap.swaps import cancelled, cancelled_by
from partitioning.commands import Resume
from partitioning.documents.document import decode, encode
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from partitioning.values import Document


class Pause(Document, frozen=True):
    """Who paused a backfill, why and when."""

    FORMAT: ClassVar[str] = "coset.pause/1"

    who: str
    why: str
    at: str


def pause(store: Store, backfill: Backfill, *, who: str, why: str, at: str) -> None:
    """Let no task group of a backfill start any more; those that run go on. Raises Refused if it is cancelled."""
    check_not_cancelled(store, backfill)
    store.put(_key(backfill), encode(Pause(who, why, at)))


def go_on(store: Store, backfill: Backfill) -> None:
    """Take a pause back, if there is one. Raises Refused if the backfill is cancelled."""
    check_not_cancelled(store, backfill)
    store.delete(_key(backfill))


def paused(store: Store, backfill: Backfill) -> Pause | None:
    """The pause of a backfill, if it is paused."""
    data = store.get(_key(backfill))
    return None if data is None else decode(Pause, data, f"{store.root}/{_key(backfill)}")


def check_not_cancelled(store: Store, backfill: Backfill) -> None:
    """Raise Refused if a backfill was cancelled."""
    if swap := cancelled(store, backfill.pipeline).get(backfill.number):
        raise Refused(cancelled_by(swap))


def check_goes_on(store: Store, backfill: Backfill) -> None:
    """Raise Refused if no task group of a backfill may start: it is cancelled or paused."""
    check_not_cancelled(store, backfill)
    if pause := paused(store, backfill):
        what = f"{pause.who} paused it at {pause.at}: {pause.why or 'no reason was given'}"
        then = ("let it go on: ", Resume(backfill.pipeline, backfill.number))
        raise Refused(
            Finding(
                Kind.BACKFILL_HELD,
                what,
                f"backfill {backfill.number} of {backfill.pipeline}",
                then,
                about(who=pause.who, at=pause.at),
            )
        )


def _key(backfill: Backfill) -> str:
    return f"{backfill.name}/paused.json"
