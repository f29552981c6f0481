"""Turns: leases on pieces of a batch's work, so that several processes share it and none does all.

A turn is a hint and decides nothing: if two processes run a task group at once they write the same rows, and the first
receipt counts. The holder of a turn renews its document every few seconds. A process that waits for the turn watches
the document by its own clock; clocks of two machines are never compared.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import ClassVar

import psutil

from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError, OutcomeUnknown
from partitioning.model.plan import Plan
from partitioning.values import Document, replace

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
