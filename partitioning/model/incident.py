"""Incidents: what stops a pipeline, from its first failure to the next success, and what somebody is to be told of it.

Each failure of one cause belongs to one incident, so that two messages come of it: that it is open, and that it has
ended. A message stays due until somebody was told: whoever is to tell it puts his name to it first. If he ends before
he has told it, the next one takes it over. An incident decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import ClassVar, assert_never

from partitioning.commands import Repeat, Then
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.values import Document, Value, replace

# Where nobody can be told for long, the oldest messages are given up.
MOST_DUE = 100
# Of a sentence; the whole one is in the log of the run.
_MOST_KEPT = 2_000


class Severity(StrEnum):
    """How bad an incident is: nothing is published, or something is not as it should be."""

    ERROR = "error"
    WARNING = "warning"


class News(StrEnum):
    """What a message says of an incident."""

    OPENED = "opened"
    ENDED = "ended"


class Trouble(Value, frozen=True, omit_defaults=True):
    """What stopped a run: its cause, by which later failures join, and the first of its findings, of which there were
    so many `more`."""

    cause: tuple[str, ...]
    what: str
    where: str
    then: Then
    more: int = 0

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Trouble:
        """By findings. What a batch waits for is what its checks found.

        >>> found = Finding(Kind.PROOF, "a key lies elsewhere", "batch 0 of late", "see the report")
        >>> Trouble.of([found]).cause
        ('proof',)
        >>> about = (("waits_for", "proof"),)
        >>> Trouble.of([Finding(Kind.BATCH_WAITS, "the batch waits", "batch 0 of late", "replan", about)]).cause
        ('proof',)
        """
        first = findings[0]
        cause = tuple(sorted({_cause(finding) for finding in findings}))
        return cls(cause, first.what[:_MOST_KEPT], first.where[:_MOST_KEPT], first.next, len(findings) - 1)

    @classmethod
    def ended(cls, error: str, where: str) -> Trouble:
        """A run that ended without a finding: by an error that nobody foresaw, or, without one, from outside."""
        how = f"with {error}" if error else "from outside"
        return cls((error or "ended",), f"the run ended {how}; its log says more", where, Repeat())


class Stopped(Value, frozen=True):
    """A run failed, `at` so many milliseconds since 1970. `batch` was open then, and has a `page` in the store."""

    trouble: Trouble
    at: int
    owner: str = ""
    batch: int | None = None
    page: str = ""
    severity: Severity = Severity.ERROR


class Passed(Value, frozen=True):
    """A run failed nowhere: it published `batch`, which has a `page` in the store, or found nothing to do."""

    at: int
    batch: int | None = None
    page: str = ""


Outcome = Stopped | Passed


class Incident(Value, frozen=True, omit_defaults=True):
    """One incident, with the trouble, batch and page of its last failure; once it has ended, those that ended it.

    Times are in milliseconds since 1970.
    """

    number: int
    trouble: Trouble
    began: int
    last: int
    failures: int = 1
    owner: str = ""
    severity: Severity = Severity.ERROR
    batch: int | None = None
    page: str = ""
    ended: int | None = None
    published: int | None = None


class Teller(Value, frozen=True):
    """The process that is to tell a message, `since` when: a process is known by its host, number and start."""

    host: str
    process: int
    started: int
    since: int


class Message(Value, frozen=True, omit_defaults=True):
    """That an incident is open or has ended. Nobody may be telling it."""

    news: News
    incident: Incident
    teller: Teller | None = None

    @property
    def name(self) -> tuple[int, News]:
        """There is one of each kind for each incident."""
        return self.incident.number, self.news


class Incidents(Document, frozen=True):
    """The incidents of a pipeline after one more run: what is open, what has `ended` by it, and which messages are due.

    The documents are numbered, and each has all that the next is made of. So of two processes that put the same one,
    the second takes into account what the first has put. `before` is the last one before in which incidents ended.

    >>> stopped = Stopped(Trouble(("proof",), "a key lies elsewhere", "batch 0", "see the report"), at=1000)
    >>> now = Incidents("late").after(stopped, "one").after(stopped, "another")
    >>> [(each.number, each.failures) for each in now.open], [message.news.value for message in now.due]
    ([(0, 2)], ['opened'])
    """

    FORMAT: ClassVar[str] = "coset.incidents/1"

    pipeline: str
    number: int = -1
    writer: str = ""
    counted: int = 0
    open: tuple[Incident, ...] = ()
    ended: tuple[Incident, ...] = ()
    due: tuple[Message, ...] = ()
    before: int = -1

    def after(self, outcome: Outcome, writer: str) -> Incidents:
        """After one more run; the same if it changes nothing."""
        match outcome:
            case Stopped():
                return self._stopped(outcome, writer)
            case Passed():
                return self._passed(outcome, writer) if self.open else self
            case _:
                assert_never(outcome)

    def claimed(self, teller: Teller, gone: Callable[[Teller], bool], writer: str) -> Incidents:
        """With the name of `teller` at each message that nobody is telling, or somebody who is gone."""
        if all(each.teller is not None and not gone(each.teller) for each in self.due):
            return self
        due = tuple(
            replace(each, teller=teller) if each.teller is None or gone(each.teller) else each for each in self.due
        )
        return replace(self._next(writer), due=due)

    def of(self, teller: Teller) -> tuple[Message, ...]:
        """The messages that he is to tell."""
        return tuple(each for each in self.due if each.teller == teller)

    def told(self, messages: Sequence[Message], writer: str) -> Incidents:
        """Without the messages that were told."""
        names = {each.name for each in messages}
        return replace(self._next(writer), due=tuple(each for each in self.due if each.name not in names))

    def _stopped(self, by: Stopped, writer: str) -> Incidents:
        known = next((each for each in self.open if each.trouble.cause == by.trouble.cause), None)
        if known is None:
            new = Incident(self.counted, by.trouble, by.at, by.at, 1, by.owner, by.severity, by.batch, by.page)
            due = (*self.due, Message(News.OPENED, new))[-MOST_DUE:]
            return replace(self._next(writer), counted=self.counted + 1, open=(*self.open, new), due=due)
        changed = replace(
            known,
            trouble=by.trouble,
            last=by.at,
            failures=known.failures + 1,
            owner=by.owner,
            batch=by.batch,
            page=by.page,
        )
        opened = tuple(changed if each is known else each for each in self.open)
        due = tuple(
            replace(each, incident=changed) if each.incident.number == known.number else each for each in self.due
        )
        return replace(self._next(writer), open=opened, due=due)

    def _passed(self, by: Passed, writer: str) -> Incidents:
        ended = tuple(replace(each, ended=by.at, published=by.batch, page=by.page or each.page) for each in self.open)
        due = (*self.due, *(Message(News.ENDED, each) for each in ended))[-MOST_DUE:]
        return replace(self._next(writer), open=(), ended=ended, due=due)

    def _next(self, writer: str) -> Incidents:
        """The next document, which says the same, but for what ended in this one."""
        if self.writer == writer:
            return self
        before = self.number if self.ended else self.before
        return replace(self, number=self.number + 1, writer=writer, ended=(), before=before)


def _cause(finding: Finding) -> str:
    kind = finding.kind.value
    return str(dict(finding.about).get("waits_for", kind)) if finding.kind is Kind.BATCH_WAITS else kind
