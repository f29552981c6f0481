"""Whoever fails, passes, comes between or dies: two messages come of each incident, and a cause has one open."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.watch import IncidentLog, milliseconds, this_process
from partitioning.model.incident import Message, News, Outcome, Passed, Stopped, Teller, Trouble
from partitioning.values import replace
from tests.examples import examples
from tests.memory_store import MemoryStore

# No process has this number.
NOBODY = 2**22 + 1
OPENED, ENDED = News.OPENED, News.ENDED
WARNED, IDLE = "warning", "nothing to do"


class Fate(Enum):
    """What becomes of a process once it has recorded how its run ended."""

    TELLS = auto()
    DIES = auto()
    TELLS_LATER = auto()
    # It has no channels.
    SILENT = auto()


@dataclass(frozen=True)
class Run:
    """How a run ends: by a cause; published, with or without a warning; or with nothing to do. `between` ends after it
    has read the incidents, before it writes."""

    cause: str | None
    fate: Fate
    between: Run | None = None


def runs(depth: int = 2) -> st.SearchStrategy[Run]:
    between = st.none() if depth == 0 else st.none() | runs(depth - 1)
    return st.builds(
        Run, st.sampled_from([None, None, "proof", "stream.lost", WARNED, IDLE]), st.sampled_from(Fate), between
    )


class Interrupted(MemoryStore):
    """A store in which somebody else does something before the next document is put, and may be the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], None] | None = None

    def put_new(self, key: str, data: bytes) -> bytes:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().put_new(key, data)


class Pipeline:
    """Its runs, and what an oracle that knows their order says of them."""

    def __init__(self) -> None:
        self.store = Interrupted()
        self.log = IncidentLog(self.store, "late")
        self.told = list[Message]()
        self.untold = list[tuple[Message, ...]]()
        self.number = 0
        self.open = Counter[str]()
        self.ended = list[tuple[str, int]]()

    def run(self, run: Run) -> None:
        self.number += 1
        at, teller = self.number, this_process()
        teller = replace(teller, since=milliseconds() + at)
        if run.fate is Fate.DIES:
            teller = Teller(socket.gethostname(), NOBODY, 0, teller.since)
        outcome = _outcome(run.cause, at)
        before = self.log.latest()
        if run.between is not None:
            between = run.between
            self.store.first = lambda: self.run(between)
        messages = self.log.record(outcome, None if run.fate is Fate.SILENT else teller)
        if self.store.first is not None:
            # Nothing was to be put.
            assert before == self.log.latest()
            self.store.first = None
        self._expect(run.cause)
        match run.fate:
            case Fate.TELLS:
                self.tell(messages)
            case Fate.TELLS_LATER:
                self.untold.append(messages)
            case Fate.DIES | Fate.SILENT:
                pass
        causes = [each.trouble.cause for each in self.log.latest().open]
        assert len(causes) == len(set(causes))

    def tell(self, messages: tuple[Message, ...]) -> None:
        self.told += messages
        if messages:
            self.log.told(messages)

    def _expect(self, cause: str | None) -> None:
        if cause is not None and cause not in (WARNED, IDLE):
            self.open[cause] += 1
            return
        # What rows were warned of lasts until others are published.
        stays = Counter({WARNED: self.open[WARNED]} if cause is not None and self.open[WARNED] else {})
        self.ended += sorted((self.open - stays).items())
        self.open = stays + Counter({WARNED: 1} if cause == WARNED else {})


def _outcome(cause: str | None, at: int) -> Outcome:
    match cause:
        case None:
            return Passed(at, batch=at)
        case "nothing to do":
            return Passed(at)
        case "warning":
            return Passed(at, batch=at, warned=(_trouble(WARNED, at),))
        case _:
            return Stopped(_trouble(cause, at), at)


def _trouble(cause: str, at: int) -> Trouble:
    # The sentence and the place of one cause differ from run to run.
    return Trouble((cause,), f"the {cause} is wrong, {at}", f"batch {at} of late", "correct it")


@settings(max_examples=examples(500))
@given(st.lists(runs(), max_size=12))
def test_two_messages_come_of_each_incident(listed: list[Run]) -> None:
    pipeline = Pipeline()
    for run in listed:
        pipeline.run(run)
    assert Counter({_name(each.trouble): each.failures for each in pipeline.log.latest().open}) == pipeline.open
    for messages in pipeline.untold:
        pipeline.tell(messages)
    pipeline.run(Run(None, Fate.TELLS))
    ended = list(pipeline.log.ended())
    assert sorted((_name(each.trouble), each.failures) for each in ended) == sorted(pipeline.ended)
    assert sorted(each.number for each in ended) == list(range(len(ended)))
    assert Counter(message.name for message in pipeline.told) == {
        (each.number, news): 1 for each in ended for news in (OPENED, ENDED)
    }
    assert (pipeline.log.latest().pipeline, pipeline.log.latest().due) == ("late", ())


def _name(trouble: Trouble) -> str:
    return trouble.cause[0]
