"""Limits: how many task groups of a backfill run at once and in which hours. Live batches go first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from typing import NamedTuple

from coset.batches.backfills.pacing.control import check_may_run
from coset.batches.backfills.pacing.hours import Hours
from coset.batches.backfills.pacing.timing import Timing, work_ahead
from coset.batches.waiting import waits_for
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from partitioning.model.plan import Plan
from partitioning.values import Value

LIVE_MINUTES = 30
# How often a waiting backfill looks again.
_LOOK = timedelta(seconds=5)


class Limits(Value, frozen=True):
    """At most `at_once` groups at the same time, only in these `hours`. A backfill waits up to `live_minutes` for each
    open batch of its pipeline."""

    at_once: int | None = None
    hours: Hours | None = None
    live_minutes: int = LIVE_MINUTES


class _Wait(NamedTuple):
    """Why no group may start, and the latest end of that."""

    sentence: str
    until: datetime


class Limited:
    """The pace of a backfill under its limits. `say` gets the reason for waiting; `now` and `sleep` are the clock."""

    def __init__(
        self,
        store: Store,
        backfill: Backfill,
        limits: Limits,
        say: Callable[[str], None],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._store, self._backfill, self._limits, self._say = store, backfill, limits, say
        self._live, self._ledger = Ledger(store, backfill.pipeline), Ledger(store, backfill.name)
        self._cancelled, self._lock = Event(), Lock()
        self._now, self._sleep = now, sleep or self._cancelled.wait
        self._timing = Timing(work_ahead(store, backfill), now)
        # Since when it has waited for each live batch, and the batches for which it has waited long enough.
        self._since: dict[int, datetime] = {}
        self._overtaken: set[int] = set()

    def at_once(self, most: int) -> int:
        return min(most, self._limits.at_once or most)

    def wait(self, plan: Plan, group: int) -> None:
        # One thread waits for all.
        with self._lock:
            if self._ledger.receipt(plan.batch, self._ledger.attempt(plan.batch), group) is not None:
                return
            began, said = self._now(), ""
            while wait := self._reason():
                if wait.sentence != said:
                    self._say(said := wait.sentence)
                self._sleep(min(wait.until - self._now(), _LOOK).total_seconds())
                self._check_not_ended()
            self._timing.start(plan, group, waited=self._now() - began)

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        return (self._timing.done(plan, group),)

    def cancel(self) -> None:
        self._cancelled.set()

    def _reason(self) -> _Wait | None:
        check_may_run(self._store, self._backfill)
        return self._outside() or self._live_first()

    def _outside(self) -> _Wait | None:
        hours = self._limits.hours
        opens = hours.opens(self._now()) if hours else None
        if opens is None:
            return None
        return _Wait(f"Outside of {hours}: it continues at {opens:%Y-%m-%d %H:%M} {opens.tzname()}", opens)

    def _live_first(self) -> _Wait | None:
        """Live batches come first unless they are blocked on an operator."""
        standing = self._live.standing()
        if not self._limits.live_minutes or not standing.open or standing.plan is None:
            return None
        batch = standing.plan.batch
        if batch in self._overtaken or (standing.verdict is None and waits_for(self._live, batch)):
            return None
        until = self._since.setdefault(batch, self._now()) + timedelta(minutes=self._limits.live_minutes)
        if self._now() < until:
            sentence = (
                f"Batch {batch} is open and goes first: it continues after that, at {until:%H:%M %Z} at the latest"
            )
            return _Wait(sentence, until)
        self._overtaken.add(batch)
        self._say(f"Batch {batch} has been open for {self._limits.live_minutes} minutes: it continues beside that")
        return None

    def _check_not_ended(self) -> None:
        if self._cancelled.is_set():
            then = (Run(self._backfill.name), ": it continues where it stopped")
            raise CosetError(
                Finding.of(
                    Kind.BACKFILL_HELD,
                    "the backfill was ended while it waited",
                    str(self._backfill),
                    then,
                    backfill=self._backfill.name,
                )
            )
