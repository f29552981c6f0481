"""The incident log of a pipeline: numbered documents below `<pipeline>/incidents/`.

Each document is the whole state, and is put only if absent: a process that comes second starts again from the first
one's document. A hint names the newest document. If the hint is lost or old, the next numbers are tried.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from coset.batches.turns import has_ended, started_at
from partitioning.documents.document import decode, encode
from partitioning.documents.numbered import last_from
from partitioning.documents.store import Store
from partitioning.errors import CosetError
from partitioning.model.incident import Incident, Incidents, Message, Outcome, Teller

# A process on another machine that takes this long to send a message is presumed dead. If it is not, people get the
# message twice.
PATIENCE_MILLISECONDS = 10 * 60 * 1000
_LONGEST_NUMBER = 9


def milliseconds() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def this_process() -> Teller:
    """The identity of this process as a sender of messages."""
    return Teller(socket.gethostname(), os.getpid(), started_at(os.getpid()), milliseconds())


class IncidentLog:
    """Reads and writes the incidents of a pipeline's runs, or of its `backfills`.

    Raises the store's errors, and Refused for damaged documents.
    """

    def __init__(self, store: Store, pipeline: str, *, backfills: bool = False) -> None:
        self._store = store
        self._pipeline = pipeline
        self._folder = f"{pipeline}/incidents/backfills" if backfills else f"{pipeline}/incidents"

    def latest(self) -> Incidents:
        """The open incidents and the messages that are due."""
        now = self._get(last_from(self._hint(), self._there))
        if now is None:
            # The hint is wrong or missing.
            now = self._get(last_from(-1, self._there))
        return now or Incidents(self._pipeline)

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
            now = self._get(now.before)

    def _change(self, change: Callable[[Incidents, str], Incidents]) -> Incidents:
        # This makes the bytes of two processes differ, so that the stored bytes tell which was first.
        writer = uuid.uuid4().hex
        while True:
            now = self.latest()
            later = change(now, writer)
            if later.number == now.number:
                return now
            data = encode(later)
            if self._store.put_new(self._key(later.number), data) == data:
                # The hint may fail: nothing depends on it.
                with suppress(CosetError):
                    self._store.put(self._hint_key, b"%d" % later.number)
                return later

    def _get(self, number: int) -> Incidents | None:
        key = self._key(number)
        data = None if number < 0 else self._store.get(key)
        return None if data is None else decode(Incidents, data, f"{self._store.root}/{key}")

    def _there(self, number: int) -> bool:
        return self._store.head(self._key(number)) is not None

    def _hint(self) -> int:
        text = self._store.get(self._hint_key) or b""
        return int(text) if text.isdigit() and len(text) <= _LONGEST_NUMBER else -1

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number}.json"

    @property
    def _hint_key(self) -> str:
        return f"{self._folder}/newest"


def _gone(teller: Teller) -> bool:
    if has_ended(teller.host, teller.process, teller.started):
        return True
    return milliseconds() - teller.since > PATIENCE_MILLISECONDS
