"""Timing: how far a backfill is and how long it still takes, by the work of the first runs and its own speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from threading import Lock

from coset.batches.backfills.outlook import seconds_worked
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.backfill import Backfill
from partitioning.model.plan import Plan
from partitioning.sections import duration


def work_ahead(store: Store, backfill: Backfill) -> dict[int, float]:
    """The work of each batch's first run: in seconds, or in records if receipts are gone."""
    ledger = Ledger(store, backfill.pipeline)
    plans = {batch: ledger.plan(batch) for batch in backfill.batches}
    worked = {batch: seconds_worked(ledger, plan) if plan else None for batch, plan in plans.items()}
    if None in worked.values():
        worked = {batch: float(plan.records) if plan else None for batch, plan in plans.items()}
    # A batch without work would divide by zero.
    return {batch: work or 0.001 for batch, work in worked.items()}


class Timing:
    """Counts a batch as its `work`, and each of its groups as an equal part of that."""

    def __init__(self, work: Mapping[int, float], now: Callable[[], datetime]) -> None:
        self._work = work
        self._now, self._lock = now, Lock()
        self._began: datetime | None = None
        self._waited = timedelta(0)
        self._started = set[tuple[int, int]]()
        self._done, self._run = 0.0, 0.0

    def start(self, plan: Plan, group: int, waited: timedelta) -> None:
        """Note that a group starts, after it `waited`."""
        with self._lock:
            if self._began is None:
                self._began = self._now()
            else:
                self._waited += waited
            self._started.add((plan.batch, group))

    def done(self, plan: Plan, group: int) -> str:
        """Note that a group has run, now or earlier. Returns a sentence on the progress and the time that is left."""
        with self._lock:
            part, total = self._work[plan.batch] / len(plan.groups), sum(self._work.values())
            self._done += part
            if (plan.batch, group) in self._started:
                self._run += part
            said = f"{min(100.0, 100 * self._done / total):.0f} % of the backfill is done"
            if self._began is None or not self._run:
                return said
            took = (self._now() - self._began - self._waited).total_seconds()
            left = max(0.0, total - self._done) * took / self._run
            return f"{said}, about {duration(left)} left" if left >= 1 else said
