"""Backfills under limits: hours, live batches first, groups at once, pause, cancel; and what is run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coset.batches.backfills import actions, limits, swaps
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.hours import Hours
from coset.batches.backfills.limits import Limited, Limits, Timing, work_ahead
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.batches.sweeping import left_over
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, SwapKind
from partitioning.model.receipt import Artefact
from tests.backfilled import Batches, appended, stored
from tests.histories import Click
from tests.logs import log_of
from tests.there import there

FOUR = Settings.parse(scheme="tasks(4)", groups=4)
EVENING = datetime(2026, 11, 22, 20, 0, tzinfo=UTC)


class Clock:
    """A clock that goes on only when somebody sleeps; then something may happen."""

    def __init__(self, start: datetime = EVENING, meanwhile: Callable[[datetime], object] = lambda now: None) -> None:
        self.time = start
        self._meanwhile = meanwhile

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self._meanwhile(self.time)


class Shown:
    """What was shown, and what happens when something begins."""

    def __init__(self, meanwhile: Callable[[str], object] = lambda name: None) -> None:
        self.told: list[str] = []
        self.names: list[str] = []
        self._meanwhile = meanwhile

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        self.names.append(name)
        self._meanwhile(name)
        yield self.told

    @property
    def groups(self) -> list[str]:
        return [name for name in self.names if name.startswith("run group")]


@pytest.fixture
def history(store: Store, tmp_path: Path) -> Batches:
    """A published batch, and a backfill of it in four groups that has not begun to run."""
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    return history


def begun(history: Batches, settings: Settings = FOUR, last: int = 0) -> Backfill:
    return actions.begin(appended(0)(f"{history.store.root}/topics", 4), history.store, Asked(0, last, settings, "hot"))


def ran(
    history: Batches,
    request: Backfill,
    limits: Limits,
    clock: Clock,
    runner: Local | None = None,
    shown: Shown | None = None,
) -> list[str]:
    """Run a backfill; why it waited."""
    said = list[str]()
    pace = Limited(history.store, request, limits, said.append, now=clock.now, sleep=clock.sleep)
    pipeline = appended(0)(f"{history.store.root}/topics", 4)
    with runner or Local(processes=1) as used:
        actions.run(pipeline, history.store, request, used, history.docs, (shown or Shown()).step, pace)
    return said


def open_batch(history: Batches, partitions: int = 4) -> BatchRef:
    history.land([Click("key-1", 50, 1)], [], partitions)
    ref, _ = plan(appended(0)(f"{history.store.root}/topics", partitions), history.store.root, Settings())
    assert ref is not None
    return ref


def test_groups_start_in_their_hours_only(history: Batches) -> None:
    clock, request = Clock(), begun(history)
    said = ran(history, request, Limits(hours=Hours.parse("22:00-06:00 Europe/Berlin")), clock)
    assert said == ["Outside of 22:00-06:00 Europe/Berlin: it continues at 2026-11-22 22:00 CET"]
    assert clock.time == datetime(2026, 11, 22, 21, 0, tzinfo=UTC)
    assert actions.comparison(history.store, request).same


def test_what_has_run_waits_for_no_hours(history: Batches) -> None:
    request = begun(history)
    ran(history, request, Limits(), Clock())
    assert ran(history, request, Limits(hours=Hours.parse("22:00-06:00")), Clock()) == []


def test_a_live_batch_goes_first(history: Batches) -> None:
    request, ref = begun(history), open_batch(history)
    clock = Clock(meanwhile=lambda now: now < EVENING + timedelta(minutes=4) or history.publish(ref, judged=False))
    said = ran(history, request, Limits(), clock)
    assert said == ["Batch 1 is open and goes first: it continues after that, at 20:30 UTC at the latest"]
    assert clock.time - EVENING == timedelta(minutes=4)
    assert Ledger(history.store, "kept").commit(1) is not None


def test_a_live_batch_that_nobody_runs_is_waited_for_only_so_long(history: Batches) -> None:
    request, clock = begun(history), Clock()
    open_batch(history)
    said = ran(history, request, Limits(live_minutes=10), clock)
    assert said == [
        "Batch 1 is open and goes first: it continues after that, at 20:10 UTC at the latest",
        "Batch 1 has been open for 10 minutes: it continues beside that",
    ]
    assert clock.time - EVENING == timedelta(minutes=10)
    assert actions.comparison(history.store, request).same


def test_a_live_batch_that_waits_itself_is_not_waited_for(history: Batches) -> None:
    request, ref = begun(history), open_batch(history)
    for attempt in range(2):
        ref.load()[0].close_attempt(
            1,
            attempt,
            b'{"findings": [{"kind": "proof", "what": "it is wrong", "where": "here", "next": "correct it"}]}',
        )
    assert ran(history, request, Limits(), Clock()) == []
    # Nor is any, if that is wanted.
    other = begun(history, Settings.parse(scheme="tasks(5)"))
    assert ran(history, other, Limits(live_minutes=0), Clock()) == []


def test_no_more_groups_run_at_once_than_are_allowed(history: Batches) -> None:
    pace = Limited(history.store, begun(history), Limits(at_once=3), print)
    assert [pace.at_once(most) for most in (1, 3, 8)] == [1, 3, 3]
    assert Limited(history.store, begun(history), Limits(), print).at_once(8) == 8


def test_who_ends_a_backfill_that_waits_ends_it(history: Batches) -> None:
    request = begun(history)
    pace = Limited(history.store, request, Limits(hours=Hours.parse("22:00-06:00")), print, now=Clock().now)
    pace.cancel()
    planned = actions.planned(appended(0)(f"{history.store.root}/topics", 4), history.store, request, 0)
    with pytest.raises(CosetError, match="the backfill was ended while it waited"):
        pace.wait(planned, 0)


def test_a_paused_backfill_goes_on_with_the_groups_that_have_not_run(history: Batches) -> None:
    request = begun(history)

    def pause(name: str) -> None:
        if name == "run group 1":
            actions.pause(history.store, request, "the night is over")

    shown = Shown(pause)
    with pytest.raises(Refused, match=r"paused it at .*: the night is over") as refused:
        ran(history, request, Limits(), Clock(), shown=shown)
    (finding,) = refused.value.findings
    assert finding.then == "resume it: `coset backfill kept --resume 0`"
    assert shown.groups == ["run group 0", "run group 1"]
    with pytest.raises(Refused, match="the night is over"):
        actions.planned(appended(0)(f"{history.store.root}/topics", 4), history.store, request, 0)
    limits.go_on(history.store, request)
    receipts = {key for key in stored(history.store) if key.startswith("kept.backfill-0/receipts/")}
    written = {entry.key: entry.etag for entry in history.store.list("kept.backfill-0/receipts/")}
    ran(history, request, Limits(), Clock())
    now = {entry.key: entry.etag for entry in history.store.list("kept.backfill-0/receipts/")}
    assert (len(receipts), len(now)) == (2, 4)
    assert {key: now[key] for key in written} == written
    assert actions.comparison(history.store, request).same


class Failing(Local):
    """Fails with one group, and keeps in mind which it ran."""

    def __init__(self) -> None:
        super().__init__(processes=1)
        self.ran: list[int] = []

    def group(self, batch: BatchRef, number: int) -> str:
        if number == 2:
            raise CosetError(Finding(Kind.MEMORY, "no memory", "this machine", "run again"))
        self.ran.append(number)
        return super().group(batch, number)


def test_only_groups_that_failed_run_again(history: Batches) -> None:
    request, failing = begun(history), Failing()
    with pytest.raises(CosetError, match="no memory"):
        ran(history, request, Limits(), Clock(), failing)
    assert failing.ran == [0, 1, 3]
    before = {entry.key: entry.etag for entry in history.store.list("tables/counts/data/")}
    ran(history, request, Limits(), Clock())
    after = {entry.key: entry.etag for entry in history.store.list("tables/counts/data/")}
    assert before.items() < after.items()
    added = after.keys() - before.keys()
    tasks = there(Ledger(history.store, request.name).plan(0))
    assert len(added) <= len(tasks.groups[2].tasks)


def test_a_cancelled_backfill_is_run_and_seen_by_nobody(history: Batches) -> None:
    store, before = history.store, history.seen()
    request = begun(history)
    ran(history, request, Limits(), Clock())
    found = actions.comparison(store, request)
    pipeline = appended(0)(f"{store.root}/topics", 4)
    files = {key for key in stored(store) if key.startswith("tables/counts/data/")}
    actions.pause(store, request, "to think")
    removed = actions.cancel(pipeline, store, request, "not needed")
    assert {file.key for file in removed.files} >= {file.path for file in _rows(store, request)}
    assert len(files - set(stored(store))) == 4
    for refused in (
        lambda: actions.swap(store, request, digest(found), ""),
        lambda: actions.comparison(store, request),
        lambda: actions.planned(pipeline, store, request, 0),
        lambda: limits.go_on(store, request),
        lambda: actions.pause(store, request, ""),
    ):
        with pytest.raises(Refused, match=r"cancelled it at .*: not needed"):
            refused()
    # What was, and who cancelled it, stays.
    (swap,) = swaps.swaps(store, "kept")
    assert (swap.turn, swap.backfill, swap.why) == (SwapKind.CANCEL, 0, "not needed")
    assert Ledger(store, request.name).verdict(0) is not None
    assert swaps.cancel(store, request, who="", why="again", at="") == swap
    assert history.seen() == before
    assert left_over(pipeline, store).files == ()
    # The same words begin another, and batches go on.
    again = begun(history)
    assert again.number == 1
    ran(history, again, Limits(), Clock())
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert history.seen() == before
    history.batch(1)


def _rows(store: Store, request: Backfill) -> tuple[Artefact, ...]:
    verdict = there(Ledger(store, request.name).verdict(0))
    return verdict.rows_of("counts")


def test_what_readers_saw_is_not_cancelled(history: Batches) -> None:
    store, request = history.store, begun(history)
    ran(history, request, Limits(), Clock())
    found = actions.comparison(store, request)
    actions.swap(store, request, digest(found), "")
    pipeline, before = appended(0)(f"{store.root}/topics", 4), stored(store)
    for _ in range(2):
        with pytest.raises(Refused, match="it was put in place by") as refused:
            actions.cancel(pipeline, store, request, "")
        assert refused.value.findings[0].then == "take it back instead: `coset undo kept 0`"
        assert stored(store) == before
        actions.undo(store, request, "")
        before = stored(store)


@pytest.mark.long
def test_who_is_killed_once_a_backfill_is_cancelled_leaves_it_cancelled(
    history: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, request = history.store, begun(history)
    ran(history, request, Limits(), Clock())
    found = actions.comparison(store, request)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    pipeline = appended(0)(f"{store.root}/topics", 4)
    for place in ("_carried_out", "sweep"):
        with monkeypatch.context() as patch:
            patch.setattr(swaps if place == "_carried_out" else actions, place, killed)
            with pytest.raises(KeyboardInterrupt):
                actions.cancel(pipeline, store, request, "not needed")
        with pytest.raises(Refused, match="cancelled it at"):
            actions.swap(store, request, digest(found), "")
    actions.cancel(pipeline, store, request, "not needed")
    assert [swap.turn for swap in swaps.swaps(store, "kept")] == [SwapKind.CANCEL]
    log = log_of(store, "counts")
    assert log.version() == 0 or all("coset.swap" not in entry for entry in log.history())
    assert {file.path for file in _rows(store, request)}.isdisjoint(stored(store))


@pytest.mark.long
def test_of_a_swap_and_a_cancellation_at_once_one_is_decided(history: Batches) -> None:
    store, before = history.store, history.seen()
    pipeline = appended(5)(f"{store.root}/topics", 4)
    for number in range(3):
        request = history.backfilled(Asked(0, 0, Settings.parse(scheme=f"tasks({number + 1})")), threshold=5)
        found = actions.comparison(store, request)

        def swap(request: Backfill = request, found: Comparison = found) -> object:
            return actions.swap(store, request, digest(found), "")

        def cancel(request: Backfill = request) -> object:
            return actions.cancel(pipeline, store, request, "not needed")

        with ThreadPoolExecutor(2) as pool:
            told = [answer.exception() for answer in [pool.submit(swap), pool.submit(cancel)]]
        assert [type(error) for error in told].count(type(None)) == 1, told
        assert {type(error) for error in told if error} <= {Conflict, Refused}
        seen = history.seen()
        if told[0] is None:
            assert seen == [row for row in before if int(str(row[2])) >= 5]
            actions.undo(store, request, "")
        assert history.seen() == before


def test_progress_is_told_by_the_work_of_the_first_runs(history: Batches) -> None:
    history.batch(1)
    request, clock = begun(history, last=1), Clock()
    work = work_ahead(history.store, request)
    assert work.keys() == {0, 1}
    assert all(seconds > 0 for seconds in work.values())
    timing = Timing({0: 30.0, 1: 10.0}, clock.now)
    pipeline = appended(0)(f"{history.store.root}/topics", 4)
    planned = actions.planned(pipeline, history.store, request, 0)
    timing.start(planned, 0, timedelta(0))
    clock.sleep(60)
    assert timing.done(planned, 0) == "19 % of the backfill is done, about 4 min left"
    # What it waits does not count, nor what had run already.
    clock.sleep(3600)
    timing.start(planned, 1, timedelta(hours=1))
    clock.sleep(60)
    assert timing.done(planned, 1) == "38 % of the backfill is done, about 3 min left"
    assert timing.done(planned, 2) == "56 % of the backfill is done, about 2 min left"
