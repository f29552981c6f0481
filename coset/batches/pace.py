"""Pace: when task groups may start, how many run at once, and which batch waits until somebody asks for it. Turns:
leases on its pieces, so that several processes share it and none does all.

Turns: leases on pieces of a batch's work, so that several processes share it and none does all. A turn is a hint and
decides nothing: if two processes run a task group at once they write the same rows, and the first receipt counts. The
holder of a turn renews its document every few seconds. A process that waits for the turn watches the document by its
own clock; clocks of two machines are never compared.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from threading import Event, Thread
from typing import ClassVar, Protocol

import msgspec
import psutil

from partitioning.commands import Replan, Run
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger, Standing
from partitioning.errors import CosetError, Finding, OutcomeUnknown, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.values import Document, replace


class Pace(Protocol):
    """Decides when task groups may start. Threads call it before and after each group."""

    def at_once(self, most: int) -> int:
        """How many groups may run at once. The runner takes `most`."""

    def wait(self, plan: Plan, group: int) -> None:
        """Return when the group may start. Raises Refused if no group may start any more."""

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        """Note that the group has run. Returns sentences on the progress."""

    def cancel(self) -> None:
        """Make all waiting threads return or raise."""


class Unbound:
    """The pace of live batches: as fast as the runner."""

    def at_once(self, most: int) -> int:
        return most

    def wait(self, plan: Plan, group: int) -> None:
        pass

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        pass


class OpenBecause(StrEnum):
    """Why a batch is open: it was not checked yet; its last attempt failed, and the next run makes another; two failed
    in the same way, so that it waits for a decision; or it is to be published, and that has not ended."""

    UNRUN = "not run"
    FAILED = "failed"
    WAITS = "waits for a decision"
    UNPUBLISHED = "not published"


def open_because(ledger: Ledger, standing: Standing) -> OpenBecause | None:
    """Why the newest batch is open; None if it is not."""
    if standing.plan is None or not standing.open:
        return None
    batch = standing.plan.batch
    if ledger.verdict(batch) is not None:
        return OpenBecause.UNPUBLISHED
    if waits_for(ledger, batch):
        return OpenBecause.WAITS
    return OpenBecause.FAILED if ledger.attempt(batch) else OpenBecause.UNRUN


def waits_for(ledger: Ledger, batch: int) -> tuple[Finding, ...]:
    """The findings of the last two attempts, if both found the same. Otherwise empty."""
    attempt = ledger.attempt(batch)
    if attempt < 2:
        return ()
    last, before = (found_by(ledger.failed_check(batch, attempt - past)) for past in (1, 2))
    return last if last == before else ()


def warned(ledger: Ledger, batch: int, attempt: int) -> tuple[Finding, ...]:
    """The unmet expectations of an attempt that are warnings, if it was judged."""
    return found_by(ledger.judgement(batch, attempt), "warnings")


def balanced(ledger: Ledger, batch: int, attempt: int) -> tuple[str, ...]:
    """How the rows of an attempt's tables were found to add up, if it was judged."""
    results = json.loads(ledger.judgement(batch, attempt) or b"{}").get("results", ())
    found = [each["result"] for each in results if each["expectation"] == "expect_rows_of_tables_to_balance"]
    return tuple(each["observed_value"] for each in found if "observed_value" in each)


def found_by(report: bytes | None, kind: str = "findings") -> tuple[Finding, ...]:
    """The findings in the report of a check, or its `warnings`. Empty if another version of Coset wrote the report in
    another form."""
    try:
        return msgspec.convert(json.loads(report or b"{}").get(kind, ()), tuple[Finding, ...])
    except msgspec.ValidationError:
        return ()


BEAT_SECONDS = 3.0
# A worker that was silent this long is presumed dead. If it is not, some work runs twice and counts once.
SILENT_SECONDS = 12.0


def group_work(number: int) -> str:
    """The name of running a task group, as a piece of work."""
    return f"group-{number}"


class Turn(Document, frozen=True):
    """A turn that a process holds. `started` is when the process started, in milliseconds since 1970."""

    FORMAT: ClassVar[str] = "coset.turn/1"

    turn: str
    host: str
    process: int
    started: int
    beats: int = 0

    @classmethod
    def of_this_process(cls) -> Turn:
        """A new turn of this process."""
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), started_at(os.getpid()))

    @property
    def ended(self) -> bool:
        """Whether its process is known to have ended. Only a process on this host can be known to."""
        return has_ended(self.host, self.process, self.started)


class Turns:
    """The turns of a batch, for one process that runs it. Threads may share this object."""

    def __init__(
        self, ledger: Ledger, plan: Plan, *, beat: float = BEAT_SECONDS, silent: float = SILENT_SECONDS
    ) -> None:
        self._ledger = ledger
        self._batch = plan.batch
        self._beat = beat
        self._silent = silent
        self._cancelled = Event()

    @contextmanager
    def turn(self, work: str, *, wait: bool) -> Iterator[bool]:
        """Hold the turn for a piece of work, named by `group_work` or by a step of the batch.

        Yields False if another process holds it, and `wait` is false or waiting was cancelled.
        """
        key = self._ledger.key("turns", self._batch, work)
        while (ours := self._take(key)) is None and wait and not self._cancelled.is_set():
            self._wait_for_other(key)
        if ours is None:
            yield False
            return
        done = Event()
        beating = Thread(target=self._beat_until, args=(done, key, ours), daemon=True)
        beating.start()
        try:
            yield True
        finally:
            done.set()
            beating.join(self._beat)
            with suppress(CosetError):
                self._ledger.store.delete(key)

    def cancel(self) -> None:
        """End all waiting."""
        self._cancelled.set()

    def _take(self, key: str) -> Turn | None:
        ours = Turn.of_this_process()
        try:
            stored = self._ledger.store.put_new(key, encode(ours))
        except OutcomeUnknown:
            # Another process gave the turn back before its document could be read.
            return None
        return ours if stored == encode(ours) else None

    def _wait_for_other(self, key: str) -> None:
        """Wait until the turn is free. A holder that has ended or is silent loses it."""
        last, heard = None, time.monotonic()
        while (data := self._ledger.store.get(key)) is not None and not self._cancelled.is_set():
            now = time.monotonic()
            if data != last:
                last, heard = data, now
            if now - heard > self._silent or decode(Turn, data, self._ledger.uri(key)).ended:
                self._ledger.store.delete(key)
                return
            self._cancelled.wait(self._beat)

    def _beat_until(self, done: Event, key: str, turn: Turn) -> None:
        while not done.wait(self._beat):
            turn = replace(turn, beats=turn.beats + 1)
            # A renewal may fail: nothing depends on it.
            with suppress(CosetError):
                self._ledger.store.put(key, encode(turn))


def has_ended(host: str, process: int, started: int) -> bool:
    """Whether a process is known to have ended: it was on this host and no such process, started then, runs."""
    if host != socket.gethostname():
        return False
    try:
        return started_at(process) != started
    except psutil.NoSuchProcess:
        return True


def started_at(process: int) -> int:
    """When a process started, in milliseconds since 1970."""
    return int(psutil.Process(process).create_time() * 1000)


def check_not_waiting(ledger: Ledger, batch: int) -> None:
    """Raise Refused with the findings of the checks if the batch waits."""
    if wrong := waits_for(ledger, batch):
        where = f"batch {batch} of {ledger.pipeline}, {ledger.attempt(batch)} attempts"
        once_more = Run(ledger.pipeline, again=True)
        then = ("correct it, then ", Replan(ledger.pipeline), "; ", once_more, " tries the same plan")
        waits = "the batch waits, its checks failed twice in the same way"
        raise Refused(
            *(
                Finding.of(
                    Kind.BATCH_WAITS,
                    f"{waits}: {found.what}",
                    where,
                    then,
                    **dict(found.about) | {"waits_for": found.kind, "at": found.where},
                )
                for found in wrong
            )
        )
