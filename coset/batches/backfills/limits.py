"""Limits: how many task groups of a backfill run at once and in which hours. Live batches go first.

A paused backfill starts no task group until somebody resumes it, a cancelled one never again. A pause is a hint for
running processes. Cancelling is decided among the swaps, so that either it or a swap counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from threading import Event, Lock
from typing import ClassVar, NamedTuple

from coset.batches.backfills.hours import Hours
from coset.batches.backfills.outlook import seconds_worked
from coset.batches.backfills.request import backfills, comparison_of
from coset.batches.backfills.swaps import cancelled, cancelled_by, swaps
from coset.batches.pace import waits_for
from partitioning.commands import Resume, Run
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from partitioning.model.plan import Plan
from partitioning.sections import duration
from partitioning.values import Document, Value


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
            what, backfill = "the backfill was ended while it waited", self._backfill
            raise CosetError.of(Kind.BACKFILL_HELD, what, str(backfill), then, backfill=backfill.name)
