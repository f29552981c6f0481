"""The watch over a pipeline: it makes an incident of what stops its runs, and has somebody told once, and once more
when it has ended.

A run's own result stays whatever happens here: what cannot be recorded or told is said in a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from coset.batches.incident_log import IncidentLog, milliseconds, this_process
from coset.batches.telling import Channel, Notice, Untold
from partitioning.commands import Shown, Status
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.explain.incident_texts import text, title
from partitioning.model.incident import Message, News, Outcome, Passed, Severity, Stopped, Trouble
from partitioning.model.plan import Plan
from partitioning.model.verdict import Verdict
from partitioning.sections import many

# Under which address people see what lies in the store, if it is not the store's own.
DOCS_URL = "COSET_DOCS_URL"


@dataclass(frozen=True, slots=True)
class Watch:
    """Over the runs of a pipeline, or its `backfills`, in the store at `root`.

    Without `channels` no incident begins: nobody would hear of it. Those that are open end all the same.
    """

    pipeline: str
    owner: str
    root: str
    channels: Sequence[Channel]
    shown: Shown
    say: Callable[[str], None]
    backfills: bool = False

    @contextmanager
    def over(self) -> Iterator[None]:
        """Over what raises if a run fails; what is raised goes on."""
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException | None) -> None:
        """A run failed with an error, or was ended from outside."""
        if isinstance(error, CosetError) and error.findings:
            self._stopped(Trouble.of(error.findings))
        else:
            # What it says may be a secret of somebody else.
            self._stopped(Trouble.ended(type(error).__name__ if error else "", f"pipeline {self.pipeline}"))

    def late(self, what: str, where: str) -> None:
        """Nothing has failed, but `what` was to be there by now."""
        self._stopped(Trouble(("late",), what, where, Status(self.pipeline)), Severity.WARNING)

    def passed(self, *, published: bool) -> None:
        """A run published a batch, or found nothing to do."""
        with self._harmless():
            log = self._log()
            now = log.latest()
            if now.open or (now.due and self.channels):
                batch, page = self._published() if published else (None, "")
                self._record(log, Passed(milliseconds(), batch, page))

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
        """Tell a message on all channels; whether somebody took it."""
        page = message.incident.page
        base = os.environ.get(DOCS_URL) or store_at(self.root).root
        link = f"{base.rstrip('/')}/{page}" if page else ""
        of = f"{self.pipeline}, backfills" if self.backfills else self.pipeline
        notice = Notice(title(of, message), text(of, message, link, self.shown), link, message)
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
        return IncidentLog(store_at(self.root), self.pipeline, backfills=self.backfills)

    def _open(self) -> tuple[int | None, str]:
        """The open batch, and the page of its last attempt that was judged."""
        with suppress(CosetError):
            ledger = Ledger(store_at(self.root), self.pipeline)
            standing = ledger.standing()
            if standing.plan is not None and standing.open and not self.backfills:
                return standing.plan.batch, _page(ledger, standing.plan, standing.verdict)
        return None, ""

    def _published(self) -> tuple[int | None, str]:
        with suppress(CosetError):
            ledger = Ledger(store_at(self.root), self.pipeline)
            plan = ledger.standing().published
            if plan is not None and not self.backfills:
                return plan.batch, _page(ledger, plan, ledger.verdict(plan.batch))
        return None, ""

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except CosetError as error:
            self.say(f"Incidents of {self.pipeline}: nobody could be told: {error.findings[0].what}")
        except Exception as error:
            self.say(f"Incidents of {self.pipeline}: nobody could be told: {type(error).__name__}")


def _page(ledger: Ledger, plan: Plan, verdict: Verdict | None) -> str:
    """The key of the page of a batch's last attempt; nothing, if it has none."""
    attempt = verdict.attempt if verdict else ledger.attempt(plan.batch) - 1
    key = f"{ledger.pipeline}/docs/batch-{plan.batch}-attempt-{attempt}.html"
    return key if attempt >= 0 and ledger.store.head(key) is not None else ""


def _incident(message: Message) -> str:
    said = "is open" if message.news is News.OPENED else "has ended"
    return f"Incident {message.incident.number} {said}"
