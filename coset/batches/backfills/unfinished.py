"""Backfills that are not at an end: neither swapped in nor cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from coset.batches.backfills.pacing.control import paused
from coset.batches.backfills.request import backfills, comparison_of
from coset.batches.backfills.swap.swaps import swaps
from partitioning.documents.store import Store


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
