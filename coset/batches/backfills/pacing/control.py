"""Control: a paused backfill starts no task group until somebody resumes it, a cancelled one never again.

A pause is a hint for running processes. Cancelling is decided among the swaps, so that either it or a swap counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from coset.batches.backfills.request import backfills, comparison_of
from coset.batches.backfills.swap.swaps import cancelled, cancelled_by, swaps
from partitioning.commands import Resume
from partitioning.documents.document import decode, encode
from partitioning.documents.store import Store
from partitioning.errors import Refused
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
    """Start no task group of a backfill any more. Running groups continue. Raises Refused if it is cancelled."""
    check_not_cancelled(store, backfill)
    store.put(_key(backfill), encode(Pause(who, why, at)))


def go_on(store: Store, backfill: Backfill) -> None:
    """Resume a backfill, if it is paused. Raises Refused if it is cancelled."""
    check_not_cancelled(store, backfill)
    store.delete(_key(backfill))


def paused(store: Store, backfill: Backfill) -> Pause | None:
    """The pause of a backfill. None if it is not paused."""
    data = store.get(_key(backfill))
    return None if data is None else decode(Pause, data, f"{store.root}/{_key(backfill)}")


def check_not_cancelled(store: Store, backfill: Backfill) -> None:
    """Raise Refused if a backfill was cancelled."""
    if swap := cancelled(store, backfill.pipeline).get(backfill.number):
        raise Refused(cancelled_by(swap, backfill))


def check_may_run(store: Store, backfill: Backfill) -> None:
    """Raise Refused if a backfill is cancelled or paused."""
    check_not_cancelled(store, backfill)
    if pause := paused(store, backfill):
        what = f"{pause.who} paused it at {pause.at}: {pause.why or 'no reason was given'}"
        then = ("resume it: ", Resume(backfill.pipeline, backfill.number))
        where = f"backfill {backfill.number} of {backfill.pipeline}"
        raise Refused.of(Kind.BACKFILL_HELD, what, where, then, who=pause.who, at=pause.at)


def _key(backfill: Backfill) -> str:
    return f"{backfill.name}/paused.json"


class Unfinished(StrEnum):
    """What a backfill is at: its batches run or were stopped, nobody may run them, or its rows are compared."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPARED = "compared"


def unfinished(store: Store, pipeline: str) -> Iterator[Unfinished]:
    """What each of a pipeline's backfills is at that is not at an end."""
    ended = {turn.backfill for turn in swaps(store, pipeline)}
    for one in backfills(store, pipeline):
        if one.number not in ended:
            if paused(store, one):
                yield Unfinished.PAUSED
            else:
                yield Unfinished.RUNNING if comparison_of(store, one) is None else Unfinished.COMPARED
