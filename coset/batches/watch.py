"""The watch over a pipeline: turns failures of its runs into incidents, and tells people once when an incident begins
and once when it ends.

Nothing here changes the result of a run: if an incident cannot be recorded or told, a sentence says so. The log of
incidents is numbered documents below `<pipeline>/incidents/`. Each is the whole state, and is put only if absent: a
process that comes second starts again from the first one's document.

Telling: sends messages about incidents by Apprise, to e-mail, chats and webhooks. Addresses hold secrets. They come
from the environment and go nowhere else: output names only an address's scheme, and the libraries that send do not
log.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from coset.batches.pace import warned
from coset.batches.turns import has_ended, started_at
from coset.batches.verifications import differing
from partitioning.commands import Shown, Status
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import NumberedLog, Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.incident import (
    Incident,
    Incidents,
    Message,
    News,
    Outcome,
    Passed,
    Severity,
    Stopped,
    Teller,
    Trouble,
    WatchedRuns,
    text,
    title,
)
from partitioning.model.plan import Plan
from partitioning.model.verdict import Verdict
from partitioning.sections import many
from partitioning.texts import environment

# The variable that holds the addresses, separated by spaces or lines.
NOTIFY = "COSET_NOTIFY"
_SCHEME = re.compile(r"[a-z][a-z0-9+-]{0,29}(?=://)")
# These loggers write addresses.
_TALKATIVE = ("apprise", "urllib3.connectionpool")


@dataclass(frozen=True, slots=True)
class Notice:
    """A message in words: a title, a text of some lines, and the address of the batch's page, if it has one."""

    title: str
    text: str
    link: str
    message: Message


class Untold(Exception):
    """Raised if a message could not be sent. The text says why, without the address."""


class Channel(Protocol):
    """A way to tell somebody."""

    @property
    def name(self) -> str:
        """Its name in a log."""

    def tell(self, notice: Notice) -> None:
        """Send a notice. Raises Untold."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """An address that Apprise knows, such as `mailto://…`."""

    url: str

    @property
    def name(self) -> str:
        scheme = _SCHEME.match(self.url)
        return scheme[0] if scheme else "an address without a scheme"

    def tell(self, notice: Notice) -> None:
        try:
            import apprise  # noqa: PLC0415  it is optional and slow to import
        except ImportError:
            raise Untold("Apprise is not installed: pip install 'coset[notify]'") from None
        known = apprise.Apprise()
        with _silent():
            if not known.add(self.url):
                raise Untold("Apprise does not know this kind of address")
            sent = known.notify(
                title=notice.title,
                body=notice.text,
                notify_type=_type(notice.message),
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not sent:
            raise Untold("the address did not take the message")


def addresses(listed: str) -> tuple[Address, ...]:
    """The addresses in a text, separated by spaces or lines.

    >>> [address.name for address in addresses("mailto://me:secret@example.org  json://127.0.0.1:9/")]
    ['mailto', 'json']
    """
    return tuple(map(Address, listed.split()))


def from_environment() -> tuple[Address, ...]:
    """The addresses of this deployment."""
    return addresses(os.environ.get(NOTIFY, ""))


def _type(message: Message) -> str:
    if message.news is News.ENDED:
        return "success"
    return "warning" if message.incident.severity is Severity.WARNING else "failure"


@contextmanager
def _silent() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


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


# The URL under which people see the store's pages, if it is not the store's own address.
DOCS_URL = "COSET_DOCS_URL"


@dataclass(frozen=True, slots=True)
class Watch:
    """Watches these `runs` of a pipeline in the store at `root`.

    Without `channels` no incident begins, because nobody would hear of it. Open incidents end all the same.
    """

    pipeline: str
    owner: str
    root: str
    channels: Sequence[Channel]
    shown: Shown
    say: Callable[[str], None]
    runs: WatchedRuns = WatchedRuns.BATCHES

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch a block that raises if a run fails. The error is raised again."""
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException | None) -> None:
        """Record that a run failed with an error, or was ended from outside."""
        if isinstance(error, CosetError) and error.findings:
            self._stopped(Trouble.of(error.findings))
        else:
            # The error's text may have a secret of another library.
            self._stopped(Trouble.ended(type(error).__name__ if error else "", f"pipeline {self.pipeline}"))

    def late(self, what: str, where: str) -> None:
        """Record that `what` is overdue, though nothing has failed."""
        self._stopped(Trouble(("late",), what, where, Status(self.pipeline)), Severity.WARNING)

    def passed(self, *, published: bool) -> None:
        """Record that a run published a batch, verified all that it was to, or found nothing to do."""
        with self._harmless():
            log = self._log()
            now = log.latest()
            if now.open or (self.channels and (now.due or published)):
                batch, page, found = self._published() if published else (None, "", ())
                known = {each.trouble.cause for each in now.open}
                told = tuple(each for each in found if self.channels or each.cause in known)
                if now.open or now.due or told:
                    self._record(log, Passed(milliseconds(), batch, page, told, self.owner, self._left(now)))

    def _stopped(self, trouble: Trouble, severity: Severity = Severity.ERROR) -> None:
        if not self.channels:
            return
        with self._harmless():
            batch, page = self._open()
            self._record(self._log(), Stopped(trouble, milliseconds(), self.owner, batch, page, severity))

    def _record(self, log: IncidentLog, outcome: Outcome) -> None:
        told = list[Message]()
        for message in log.record(outcome, this_process() if self.channels else None):
            if self._tell(message):
                told.append(message)
        if told:
            log.told(told)

    def _tell(self, message: Message) -> bool:
        """Send a message to all channels. Returns whether one took it."""
        page = message.incident.page
        base = os.environ.get(DOCS_URL) or store_at(self.root).root
        link = f"{base.rstrip('/')}/{page}" if page else ""
        of = self.pipeline if self.runs is WatchedRuns.BATCHES else f"{self.pipeline}, {self.runs}"
        notice = Notice(
            title(of, message, environment()), text(of, message, link, self.shown, environment()), link, message
        )
        reached = 0
        for channel in self.channels:
            try:
                channel.tell(notice)
                reached += 1
            except Exception as error:
                why = str(error) if isinstance(error, Untold) else type(error).__name__
                self.say(f"{_incident(message)}: {channel.name} could not be told: {why}")
        if reached:
            self.say(f"{_incident(message)}: told by {many(reached, 'channel')} of {len(self.channels)}")
        else:
            self.say(f"{_incident(message)}: nobody could be told; the next run tries again")
        return reached > 0

    def _log(self) -> IncidentLog:
        return IncidentLog(store_at(self.root), self.pipeline, self.runs)

    def _open(self) -> tuple[int | None, str]:
        """The open batch, and the page of its last judged attempt."""
        with suppress(CosetError):
            ledger = Ledger(store_at(self.root), self.pipeline)
            standing = ledger.standing()
            if standing.plan is not None and standing.open and self.runs is WatchedRuns.BATCHES:
                return standing.plan.batch, _page(ledger, standing.plan, standing.verdict)
        return None, ""

    def _published(self) -> tuple[int | None, str, tuple[Trouble, ...]]:
        """The batch that was published last, the page of its attempt, and what that was warned of."""
        with suppress(CosetError):
            ledger = Ledger(store_at(self.root), self.pipeline)
            plan = ledger.standing().published
            verdict = ledger.verdict(plan.batch) if plan is not None else None
            if plan is not None and verdict is not None and self.runs is WatchedRuns.BATCHES:
                found = warned(ledger, plan.batch, verdict.attempt)
                return plan.batch, _page(ledger, plan, verdict), tuple(map(Trouble.warned, found))
        return None, "", ()

    def _left(self, now: Incidents) -> tuple[tuple[str, ...], ...]:
        """The causes that this run has not looked at: a table differs in a part of its keys until that part is found
        to be equal."""
        differ = {each.trouble.cause for each in now.open if Kind.TABLE_DIFFERS.value in each.trouble.cause}
        left = (
            differ and self.runs is WatchedRuns.VERIFICATIONS and differing(Ledger(store_at(self.root), self.pipeline))
        )
        return tuple(differ) if left else ()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except CosetError as error:
            self.say(f"Incidents of {self.pipeline}: nobody could be told: {error.findings[0].what}")
        except Exception as error:
            self.say(f"Incidents of {self.pipeline}: nobody could be told: {type(error).__name__}")


def _page(ledger: Ledger, plan: Plan, verdict: Verdict | None) -> str:
    """The key of the page of a batch's last attempt. Empty if it has none."""
    attempt = verdict.attempt if verdict else ledger.attempt(plan.batch) - 1
    key = f"{ledger.pipeline}/docs/batch-{plan.batch}-attempt-{attempt}.html"
    return key if attempt >= 0 and ledger.store.head(key) is not None else ""


def _incident(message: Message) -> str:
    said = "is open" if message.news is News.OPENED else "has ended"
    return f"Incident {message.incident.number} {said}"
