"""Random histories of batches, backfills, swaps and undos, killed and raced, against one process in plain Python.

Between them tables are compacted, old files removed, and objects of state lost, which are made anew.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coset.batches import steps
from coset.batches.backfills import actions, swaps
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import comparison_of
from coset.batches.interpreter import silently
from coset.batches.kept import kept_states
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.sweeping import left_over
from coset.batches.tables.compaction import compact
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, Refused
from partitioning.hashes import placement_hash
from partitioning.model.backfill import Backfill
from partitioning.values import Value
from tests.backfilled import CORRECTED, EVERY, GAP, LIFE, LONG, Batches, goes_on, timed
from tests.examples import examples, few
from tests.histories import Click

# Many more take minutes each ten of them.
HISTORIES = int(os.environ.get("COSET_HISTORIES", "3"))
# Few in `make test`, all in `make test-all`.
STEPS = max(3, examples(6))
SCHEMES = ("cogroup", "elastic(2)", "tasks(3)", "tasks(1)", "tasks(9)")
EPOCH, MINUTE = datetime.fromisoformat("1970-01-01"), timedelta(minutes=1)
PARTITIONS = 4
Rows = list[tuple[object, ...]]


class Timed(Value, frozen=True):
    """What is kept of what goes by time: the records of open windows, of those that may be corrected and of those with
    sessions, and those of each life that is not over."""

    open: list[Click]
    corrected: list[Click]
    sessions: list[Click]
    lives: list[list[Click]]


class Given(Value, frozen=True):
    """What a batch gives of what goes by time, and what is kept then."""

    windows: Rows
    corrected: Rows
    sessions: Rows
    alive: Rows
    ended: Rows
    kept: Timed


def shown(click: Click) -> tuple[object, ...]:
    return click.key, click.identity, EPOCH + click.minute * MINUTE


def timed_of(batches: Sequence[Sequence[Click]], watermarks: Sequence[int | None]) -> Iterator[Given]:
    """What batches give that have these records, each by its watermark."""
    known, before = Timed([], [], [], []), None
    for clicks, now in zip(batches, watermarks, strict=False):
        windows = windows_of([*known.open, *(each for each in clicks if before is None or end_of(each) > before)])
        closed = {window for window in windows if now is not None and window[1] <= now}
        corrected = list(corrected_of(known.corrected, clicks, before, now))
        in_time = [*known.sessions, *(each for each in clicks if before is None or each.minute >= before)]
        sessions = [
            session
            for session in lives_of(in_time, GAP, LONG)
            if now is not None and is_over(session, now) and (before is None or not is_over(session, before))
        ]
        lives = list(lives_of([click for life in known.lives for click in life] + list(clicks)))
        over = [life for life in lives if now is not None and life[-1].minute < now - LIFE]
        there = [life for life in lives if life not in over]
        touched = {life[0].key: life for life in there if life[0].key in {click.key for click in clicks}}
        known = Timed(
            sorted(click for window, mine in windows.items() if window not in closed for click in mine),
            sorted(each for each in [*known.corrected, *clicks] if now is None or end_of(each) > now - CORRECTED),
            sorted(each for each in in_time if now is None or end_of(each, LONG) > now),
            there,
        )
        yield Given(
            [row_of(mine, end - EVERY) for (key, end), mine in windows.items() if (key, end) in closed],
            corrected,
            [row_of(session, session[0].minute) for session in sessions],
            [shown(life[-1]) for life in touched.values()],
            [shown(life[-1]) for life in over],
            known,
        )
        before = now


def windows_of(clicks: Iterable[Click]) -> dict[tuple[str | None, int], list[Click]]:
    """The records of each key and window, by the window's end."""
    windows = defaultdict[tuple[str | None, int], list[Click]](list)
    for click in clicks:
        windows[click.key, end_of(click)].append(click)
    return windows


def row_of(clicks: Sequence[Click], start: int) -> tuple[object, ...]:
    return clicks[0].key, len(clicks), sum(click.identity for click in clicks), EPOCH + start * MINUTE


def corrected_of(kept: Sequence[Click], new: Sequence[Click], before: int | None, now: int | None) -> Iterator[Any]:
    """The rows of windows that are over: those that were not before, and those that get records again."""
    got = windows_of(new)
    for (key, end), mine in windows_of([*kept, *new]).items():
        is_first = before is None or end > before
        is_again = (key, end) in got and before is not None and end > before - CORRECTED
        if now is not None and end <= now and (is_first or is_again):
            yield row_of(mine, end - EVERY)


def is_over(session: Sequence[Click], now: int) -> bool:
    """Whether nothing comes to a session any more."""
    return session[-1].minute < now - GAP or end_of(session[0], LONG) <= now


def end_of(click: Click, every: int = EVERY) -> int:
    """When its window ends. Windows begin at multiples of their length from a Monday on, and a day has whole ones."""
    return click.minute - click.minute % every + every


def lives_of(clicks: Iterable[Click], apart: int = LIFE, within: int | None = None) -> Iterator[list[Click]]:
    """The records of each life of a key, those of a key in their order; or of each session, if they have to be in one
    window `within` which it is."""
    life = list[Click]()
    for click in sorted(clicks, key=lambda each: (each.key or "", each.minute, each.identity)):
        is_elsewhere = life and within is not None and end_of(life[0], within) != end_of(click, within)
        if life and (life[-1].key != click.key or click.minute - life[-1].minute > apart or is_elsewhere):
            yield life
            life = []
        life.append(click)
    if life:
        yield life


class Run(Value, frozen=True):
    """A backfill as the oracle knows it: these batches, filtered by this threshold."""

    backfill: Backfill
    threshold: int
    kept_before: dict[str, object]

    @property
    def batches(self) -> Sequence[int]:
        return self.backfill.batches


class Oracle:
    """Knows the records of every batch, and by which thresholds they were filtered: the last one counts."""

    def __init__(self) -> None:
        self.records: list[list[Click]] = []
        self.thresholds: list[list[int]] = []
        self.stacks: list[list[int]] = []

    def batch(self, clicks: list[Click]) -> None:
        self.records.append(clicks)
        self.thresholds.append([0])
        self.stacks.append([-1])

    def chosen(self, upto: int, otherwise: Run | None = None) -> list[list[Click]]:
        """The records of each batch that count, some by another threshold."""
        chosen = []
        for batch in range(upto + 1):
            mine = self.thresholds[batch][-1]
            if otherwise is not None and batch in otherwise.batches:
                mine = otherwise.threshold
            chosen.append([click for click in self.records[batch] if click.identity >= mine])
        return chosen

    def kept(self, upto: int, otherwise: Run | None = None) -> dict[str, object]:
        """What each step goes on from after a batch."""
        timed = list(timed_of(self.chosen(upto, otherwise), self.watermarks))[-1].kept
        return {
            "newest": self.newest(upto, otherwise),
            "windows.chosen": timed.open,
            "corrected.chosen": timed.corrected,
            "sessions.chosen": timed.sessions,
            "alive": timed.lives,
        }

    @property
    def watermarks(self) -> list[int | None]:
        """The minute before which no record is expected in each batch, whatever thresholds there are."""
        times, latest = list[int | None](), dict[int, int]()
        for clicks in self.records:
            reached = min(latest.values()) if len(latest) == PARTITIONS else None
            times.append(reached)
            for click in clicks:
                home = placement_hash(click.key or "") % PARTITIONS
                latest[home] = max(latest.get(home, 0), click.minute)
        return times

    def given(self) -> dict[str, Rows]:
        """What all batches gave of what goes by time."""
        found: dict[str, Rows] = {"windows": [], "corrected": [], "sessions": [], "alive": [], "ended": []}
        for batch, each in enumerate(timed_of(self.chosen(len(self.records) - 1), self.watermarks)):
            for table, rows in found.items():
                rows += [(*row, batch) for row in getattr(each, table)]
        return {table: sorted(rows, key=repr) for table, rows in found.items()}

    def newest(self, upto: int, otherwise: Run | None = None) -> Rows:
        """The newest record of each key, with when it was: of two with the same identity one may be gone."""
        newest: dict[str | None, Click] = {}
        for click in (click for batch in self.chosen(upto, otherwise) for click in batch):
            before = newest.get(click.key)
            if before is None or (click.minute, click.identity) > (before.minute, before.identity):
                newest[click.key] = click
        return sorted(map(shown, newest.values()))

    def counts(self) -> Rows:
        rows: Rows = []
        for batch, clicks in enumerate(self.chosen(len(self.records) - 1)):
            for key in {click.key for click in clicks}:
                mine = [click.identity for click in clicks if click.key == key]
                rows.append((key, len(mine), sum(mine), batch))
        return sorted(rows, key=repr)

    def swap(self, run: Run) -> None:
        for batch in run.batches:
            self.thresholds[batch].append(run.threshold)
            self.stacks[batch].append(run.backfill.number)

    def undo(self, run: Run) -> None:
        for batch in run.batches:
            self.thresholds[batch].pop()
            self.stacks[batch].pop()


class Story:
    """A history and its oracle, side by side."""

    def __init__(self, chosen: random.Random, store: Store, docs: Path, patch: pytest.MonkeyPatch) -> None:
        self.history, self.oracle, self._store = Batches(store, docs, timed), Oracle(), store
        self._random, self._patch = chosen, patch
        # Of its own, so that what is cancelled in between changes nothing else of the story.
        self._cancels = random.Random(repr(chosen.getstate()))
        self._upkeep = random.Random(f"{chosen.getstate()} upkeep")
        self._swapped: list[Run] = []
        self.done: list[str] = []

    @property
    def newest(self) -> int:
        return len(self.oracle.records) - 1

    def step(self) -> None:
        actions: list[Callable[[], str]] = [self.batch, self.backfill, self.backfill]
        action = self._random.choice([*actions, *([self.undo, self.undo] if self._swapped else [])])
        self.done.append(action())
        if self._cancels.random() < 0.25:
            self.done.append(self.cancelled())
        if self._upkeep.random() < 0.5:
            self.done.append(self._upkeep.choice([self.compacted, self.lost])())
        counts, newest = self.history.seen(), self.history.seen("newest")
        assert (counts, newest) == (self.oracle.counts(), self.oracle.newest(self.newest)), self.done
        for table, rows in self.oracle.given().items():
            assert self.history.seen(table) == rows, (table, self.done)

    def batch(self) -> str:
        # Until each partition has had records nothing is over.
        number, many = self.newest + 1, self._random.choice([1, 4, 8])
        keys = self._random.sample(range(12), many if self.oracle.records else 12)
        minutes = [max(0, 7 * number - self._random.choice([0, 0, 0, 1, 3, 7])) for _ in keys]
        clicks = [Click(f"key-{key}", self._random.randrange(40), at) for key, at in zip(keys, minutes, strict=True)]
        self.history.land(clicks, [], PARTITIONS)
        # Whatever threshold counted before, the step goes on from what it kept.
        settings = goes_on(self._pipeline(), Settings.parse(scheme=self._random.choice(SCHEMES)))
        self.history.publish(self.history.plan(settings, PARTITIONS), judged=False)
        self.oracle.batch(clicks)
        return f"batch {number}"

    def backfill(self) -> str:
        first = self._random.randint(0, self.newest)
        last = self._random.choice([first, self.newest, self._random.randint(first, self.newest)])
        threshold = self._random.choice([0, 0, 10, 20])
        asked = Asked(first, last, Settings.parse(scheme=self._random.choice(SCHEMES)))
        backfill = self.history.backfilled(asked, threshold=threshold)
        found = actions.comparison(self._store, backfill)
        run = Run(backfill, threshold, self.oracle.kept(last))
        kept = self.oracle.kept(last, run)
        exchanged = kept != run.kept_before
        assert {state.step: state.same for state in found.states} == {
            step: rows == run.kept_before[step] for step, rows in kept.items()
        }
        told = f"backfill {first}-{last} by {threshold}"
        if exchanged and last != self.newest:
            with pytest.raises(Refused, match="on which later batches"):
                actions.swap(self._store, backfill, digest(found), "")
            return f"{told} is refused"
        how = self._random.choice(["", "killed before", "killed after", "raced"])
        self._turned(how, lambda: actions.swap(self._store, backfill, digest(found), ""))
        self.oracle.swap(run)
        self._swapped.append(run)
        return f"{told} {how}"

    def undo(self) -> str:
        run = self._random.choice(self._swapped)
        on_top = all(self.oracle.stacks[batch][-1] == run.backfill.number for batch in run.batches)
        last = run.batches[-1]
        found = comparison_of(self._store, run.backfill)
        assert found is not None
        exchanged = not all(state.same for state in found.states)
        told = f"undo of backfill {run.backfill.number}"
        if not on_top or (exchanged and last != self.newest):
            with pytest.raises(Refused):
                actions.undo(self._store, run.backfill, "")
            return f"{told} is refused"
        how = self._random.choice(["", "killed before", "killed after", "raced"])
        self._turned(how, lambda: actions.undo(self._store, run.backfill, ""))
        self.oracle.undo(run)
        self._swapped.remove(run)
        return f"{told} {how}"

    def cancelled(self) -> str:
        """Run a backfill that nobody wants, whose files go; who decided that may be killed before they do."""
        batch, how = self._cancels.randint(0, self.newest), self._cancels.choice(["", "killed", "raced"])
        asked = Asked(batch, batch, Settings.parse(scheme=self._cancels.choice(SCHEMES)))
        backfill = self.history.backfilled(asked, threshold=30)
        found = actions.comparison(self._store, backfill)
        pipeline = self._pipeline()

        def cancel() -> object:
            return actions.cancel(pipeline, self._store, backfill, "nobody wants it")

        if how == "killed":
            with self._patch.context() as patch:
                patch.setattr(swaps, "_carried_out", _killed)
                with pytest.raises(KeyboardInterrupt):
                    cancel()
        if how == "raced":
            with ThreadPoolExecutor(3) as pool:
                told = list(pool.map(lambda _: _answer(cancel), range(3)))
            assert {type(error) for error in told if error} <= {Conflict}, told
        cancel()
        with pytest.raises(Refused, match="nobody wants it"):
            actions.swap(self._store, backfill, digest(found), "")
        assert left_over(pipeline, self._store).files == ()
        return f"backfill of {batch} is cancelled {how}"

    def compacted(self) -> str:
        """Put the files of each batch together, as somebody does now and then."""
        compact(self._pipeline(), self._store, timedelta(days=7))
        return "compacted"

    def lost(self) -> str:
        """Lose some of what the next batch goes on from; it is as it was when it is made anew."""
        kept = [file for state in kept_states(Ledger(self._store, "kept")) for run in state.runs for file in run]
        gone = self._upkeep.sample(kept, self._upkeep.randint(1, len(kept)))
        before = {file.path: self._store.get(file.path) for file in gone}
        for path in before:
            self._store.delete(path)
        with Local(processes=1) as runner:
            made = restore("kept", self._store, runner, silently)
        assert {file.path for file in made} >= before.keys()
        assert {path: self._store.get(path) for path in before} == before
        return f"{len(before)} objects of state were lost"

    def _pipeline(self) -> Pipeline:
        return timed(0)(f"{self._store.root}/topics", PARTITIONS)

    def _turned(self, how: str, turn: Callable[[], object]) -> None:
        """Swap or undo: at once, by several, or by one who is killed and another who finishes it."""
        match how:
            case "raced":
                with ThreadPoolExecutor(3) as pool:
                    told = list(pool.map(lambda _: _answer(turn), range(3)))
                # Who decides the same at the same second has decided it too.
                assert None in told, told
                assert {type(error) for error in told if error} <= {Conflict, Refused}, told
            case "killed before" | "killed after":
                with self._patch.context() as patch:
                    for name in self._upkeep.choice([("exchange",), ("replace_rows", "restore_rows")]):
                        patch.setattr(swaps, name, _deadly(getattr(swaps, name), how))
                    if (stopped := _answer(turn)) is None:
                        # Nothing is kept otherwise: there is but one table.
                        return
                    assert isinstance(stopped, Killed), stopped
                self._next_comer()
            case _:
                turn()

    def _next_comer(self) -> None:
        """Somebody has other things to do, and finishes first what was left half done."""
        match self._upkeep.randrange(3):
            case 0:
                swaps.finish(self._store, "kept")
            case 1:
                pipeline = self._pipeline()
                ref, _ = steps.plan(pipeline, self._store.root, goes_on(pipeline, DEFAULTS))
                # Without new records there is a batch if more is over by now.
                if ref is not None:
                    self.history.publish(ref, judged=False)
                    self.oracle.batch([])
            case _:
                compact(self._pipeline(), self._store, timedelta(days=7))
        assert swaps.half(self._store, "kept") is None


class Killed(Exception):
    """What a process is told that is killed."""


def _deadly(commit: Callable[..., int], how: str) -> Callable[..., int]:
    def killed(*place: Any) -> int:
        if how == "killed after":
            commit(*place)
        raise Killed

    return killed


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def _answer(turn: Callable[[], object]) -> Exception | None:
    try:
        turn()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("seed", few(range(HISTORIES)))
def test_readers_see_what_they_should(seed: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(random.Random(seed), store, tmp_path, monkeypatch)
    for _ in range(3):
        story.done.append(story.batch())
    for _ in range(STEPS):
        story.step()
