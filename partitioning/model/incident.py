"""Incidents: what stops a pipeline, from its first failure to the next success, and the messages about it.

Failures with the same cause belong to one incident, so each incident has two messages: that it opened, and that it
ended. A message is due until it was sent. A process puts its name to a message before it sends it; if the process ends
before that, the next one takes over. An incident decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import ClassVar

from partitioning.commands import Repeat, Report, Shown, Then
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.journal import as_time
from partitioning.sections import many
from partitioning.texts import indented, visible
from partitioning.values import Document, Value, replace

# If messages cannot be sent for long, the oldest are dropped.
MOST_DUE = 100
# The first word of the causes of warnings.
_WARNED = "warning"
# This much of a sentence is kept; the log of the run has all of it.
_MOST_KEPT = 2_000


class WatchedRuns(StrEnum):
    """The runs of a pipeline that have incidents of their own, in its folder of incidents or below it."""

    BATCHES = "runs"
    BACKFILLS = "backfills"
    VERIFICATIONS = "verifications"


class Severity(StrEnum):
    """How bad an incident is: nothing is published, or something is not as it should be."""

    ERROR = "error"
    WARNING = "warning"


class News(StrEnum):
    """What a message says of an incident."""

    OPENED = "opened"
    ENDED = "ended"


class Trouble(Value, frozen=True, omit_defaults=True):
    """What stopped a run: the cause, by which later failures join, the first findings, and the number of `more`."""

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
    def warned(cls, finding: Finding) -> Trouble:
        """The trouble of unmet expectations whose severity is a warning: each is a cause of its own."""
        of = dict(finding.about)
        cause = (_WARNED, *(str(of[name]) for name in ("table", "expectation", "column") if name in of))
        return cls(cause, finding.what[:_MOST_KEPT], finding.where[:_MOST_KEPT], finding.next)

    @property
    def is_of_rows(self) -> bool:
        """Whether it is about rows that are published: it lasts until others are."""
        return self.cause[0] == _WARNED

    @classmethod
    def ended(cls, error: str, where: str) -> Trouble:
        """The trouble of a run that ended without a finding: by an unexpected error, or, without one, from outside."""
        how = f"with {error}" if error else "from outside"
        return cls((error or "ended",), f"the run ended {how}; its log says more", where, Repeat())


class Stopped(Value, frozen=True):
    """A failed run, `at` this many milliseconds since 1970. `batch` was open, and its `page` lies in the store."""

    trouble: Trouble
    at: int
    owner: str = ""
    batch: int | None = None
    page: str = ""
    severity: Severity = Severity.ERROR


class Passed(Value, frozen=True):
    """A run failed nowhere: it published `batch`, which has a `page` in the store, or found nothing to do. What it was
    `warned` of is told to the `owner`. Incidents of the causes that it `leaves` have not ended."""

    at: int
    batch: int | None = None
    page: str = ""
    warned: tuple[Trouble, ...] = ()
    owner: str = ""
    leaves: tuple[tuple[str, ...], ...] = ()


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
    """The message that an incident opened or ended. `teller` is None if no process is sending it."""

    news: News
    incident: Incident
    teller: Teller | None = None

    @property
    def name(self) -> tuple[int, News]:
        """There is one of each kind for each incident."""
        return self.incident.number, self.news


class Incidents(Document, frozen=True):
    """The incidents of a pipeline after one more run: those that are open, those that `ended` with it, and the messages
    due.

    The documents are numbered, and each has all that the next one needs. If two processes put the same number, the
    second reads what the first put and tries again. `before` is the last document in which incidents ended.

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
                return self._passed(outcome, writer)

    def claimed(self, teller: Teller, gone: Callable[[Teller], bool], writer: str) -> Incidents:
        """The incidents with `teller` at each message that no living process is sending."""
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
        now, causes = self, {*by.leaves, *(trouble.cause for trouble in by.warned)}
        for trouble in by.warned:
            now = now._stopped(Stopped(trouble, by.at, by.owner, by.batch, by.page, Severity.WARNING), writer)
        stay = tuple(
            each for each in now.open if each.trouble.cause in causes or (by.batch is None and each.trouble.is_of_rows)
        )
        ended = tuple(
            replace(each, ended=by.at, published=by.batch, page=by.page or each.page)
            for each in now.open
            if each not in stay
        )
        if not ended:
            return now
        due = (*now.due, *(Message(News.ENDED, each) for each in ended))[-MOST_DUE:]
        return replace(now._next(writer), open=stay, ended=ended, due=due)

    def _next(self, writer: str) -> Incidents:
        """The next document: the same, without the incidents that ended in this one."""
        if self.writer == writer:
            return self
        before = self.number if self.ended else self.before
        return replace(self, number=self.number + 1, writer=writer, ended=(), before=before)


def _cause(finding: Finding) -> str:
    kind = finding.kind.value
    return str(dict(finding.about).get("waits_for", kind)) if finding.kind is Kind.BATCH_WAITS else kind


_MOST_IN_A_TITLE = 120


def cause(incident: Incident) -> str:
    """What is wrong, on one line."""
    return visible(incident.trouble.what.partition("\n")[0])


def title(pipeline: str, message: Message, environment: str = "") -> str:
    """The message on one line, as the subject of a mail."""
    match message.news:
        case News.OPENED if message.incident.severity is Severity.WARNING:
            said = "warning"
        case News.OPENED:
            said = "failed"
        case News.ENDED:
            said = "works again"
    return visible(
        f"Coset{f' {environment}' if environment else ''}, {pipeline} {said}: {cause(message.incident)}",
        _MOST_IN_A_TITLE,
    )


def text(pipeline: str, message: Message, link: str, shown: Shown, environment: str = "") -> str:
    """The whole message: what is wrong, where, the next step, and its subject."""
    incident = message.incident
    match message.news:
        case News.OPENED:
            said = list(_opened(pipeline, incident, shown))
        case News.ENDED:
            said = list(_ended(incident))
    return "\n".join([*said, "", *_about(pipeline, incident, link, environment)])


def _opened(pipeline: str, incident: Incident, shown: Shown) -> Iterator[str]:
    trouble = incident.trouble
    yield indented(trouble.what)
    yield f"  where: {visible(trouble.where)}"
    yield f"  next:  {visible(shown.says(trouble.then))}"
    if trouble.more:
        there = "" if incident.batch is None else f": `{shown.line(Report(pipeline, incident.batch))}`"
        yield f"There {'is' if trouble.more == 1 else 'are'} {many(trouble.more, 'finding')} more{there}"


def _ended(incident: Incident) -> Iterator[str]:
    how = "nothing is wrong any more" if incident.published is None else f"batch {incident.published} is published"
    yield f"It has ended: {how}."
    yield f"It was: {indented(incident.trouble.what)}"


def _about(pipeline: str, incident: Incident, link: str, environment: str) -> Iterator[str]:
    yield f"Pipeline: {visible(pipeline)}"
    if environment:
        yield f"Environment: {visible(environment)}"
    if incident.batch is not None:
        yield f"Batch: {incident.batch}"
    yield f"Since: {as_time(incident.began)}, {many(incident.failures, 'failure')}"
    if incident.ended is not None:
        yield f"Until: {as_time(incident.ended)}"
    if incident.owner:
        yield f"Owner: {visible(incident.owner)}"
    if link:
        yield f"Page: {visible(link)}"
