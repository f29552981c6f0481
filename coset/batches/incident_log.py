"""The incident log of a pipeline: numbered documents below `<pipeline>/incidents/`.

Each document is the whole state, and is put only if absent: a process that comes second starts again from the first
one's document.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from coset.batches.turns import has_ended, started_at
from partitioning.documents.numbered import NumberedLog
from partitioning.documents.store import Store
from partitioning.model.incident import Incident, Incidents, Message, Outcome, Teller, WatchedRuns

# A process on another machine that takes this long to send a message is presumed dead. If it is not, people get the
# message twice.
PATIENCE_MILLISECONDS = 10 * 60 * 1000


def milliseconds() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def this_process() -> Teller:
    """The identity of this process as a sender of messages."""
    return Teller(socket.gethostname(), os.getpid(), started_at(os.getpid()), milliseconds())


class IncidentLog:
    """Reads and writes the incidents of these runs of a pipeline.

    Raises the store's errors, and Refused for damaged documents.
    """

    def __init__(self, store: Store, pipeline: str, runs: WatchedRuns = WatchedRuns.BATCHES) -> None:
        self._pipeline = pipeline
        folder = f"{pipeline}/incidents"
        self._log = NumberedLog(store, Incidents, folder if runs is WatchedRuns.BATCHES else f"{folder}/{runs}")

    def latest(self) -> Incidents:
        """The open incidents and the messages that are due."""
        return self._log.newest() or Incidents(self._pipeline)

    def record(self, outcome: Outcome, teller: Teller | None) -> tuple[Message, ...]:
        """Record how a run ended. Returns the messages that `teller` has to send; without one they stay due."""

        def change(now: Incidents, writer: str) -> Incidents:
            later = now.after(outcome, writer)
            return later if teller is None else later.claimed(teller, _gone, writer)

        later = self._change(change)
        return later.of(teller) if teller else ()

    def told(self, messages: Sequence[Message]) -> None:
        """Record that these messages were sent."""
        self._change(lambda now, writer: now.told(messages, writer))

    def ended(self) -> Iterator[Incident]:
        """The incidents that have ended, newest first."""
        now: Incidents | None = self.latest()
        while now is not None:
            yield from reversed(now.ended)
            now = self._log.get(now.before)

    def _change(self, change: Callable[[Incidents, str], Incidents]) -> Incidents:
        # This makes the bytes of two processes differ, so that the stored bytes tell which was first.
        writer = uuid.uuid4().hex
        while True:
            now = self.latest()
            later = change(now, writer)
            if later.number == now.number or self._log.put(later.number, later):
                return later


def _gone(teller: Teller) -> bool:
    if has_ended(teller.host, teller.process, teller.started):
        return True
    return milliseconds() - teller.since > PATIENCE_MILLISECONDS
