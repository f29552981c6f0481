"""The incidents of a pipeline in a store: how much is read for one more, what a lost hint costs, what is kept."""

from __future__ import annotations

from collections import Counter

import pytest

from coset.batches.watch import IncidentLog, this_process
from partitioning.commands import Replan, Shown
from partitioning.documents.document import encode
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.incident import MOST_DUE, Passed, Severity, Stopped, Trouble, WatchedRuns, text, title
from tests.memory_store import MemoryStore

AT = 1_795_514_400_000
WRONG = Finding(
    Kind.PROOF, "a key lies elsewhere\n    - key 'N78'", "batch 0 of late", ("correct it, then ", Replan("late"))
)
PAGE = "late/docs/batch-3-attempt-1.html"


class Counting(MemoryStore):
    """Counts what is read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()

    def get(self, key: str) -> bytes | None:
        self.reads["get"] += 1
        return super().get(key)

    def head(self, key):
        self.reads["head"] += 1
        return super().head(key)

    def list(self, prefix, limit=None):
        raise AssertionError("what was decided never rests on a listing")


def stopped(kind: Kind = Kind.PROOF) -> Stopped:
    return Stopped(Trouble.of([Finding(kind, "it is wrong", "here", "correct it")]), AT, "ana", 3)


def failed(log: IncidentLog, kind: Kind = Kind.PROOF) -> None:
    messages = log.record(stopped(kind), this_process())
    if messages:
        log.told(messages)


def test_what_is_read_for_one_more_failure_does_not_grow() -> None:
    store = Counting()
    log, reads, sizes = IncidentLog(store, "late"), list[Counter[str]](), list[int]()
    for _ in range(3):
        for _ in range(40):
            failed(log)
            log.told(log.record(Passed(AT + 1), this_process()))
        failed(log)
        store.reads.clear()
        failed(log)
        reads.append(store.reads.copy())
        sizes.append(len(encode(log.latest())))
        log.told(log.record(Passed(AT + 1), this_process()))
    assert reads[0] == reads[1] == reads[2]
    assert reads[0].total() <= 3
    assert max(sizes) < 1_000


@pytest.mark.parametrize("hint", [None, b"2", b"0", b"999999", b"x", b"-1", b"9" * 40, b""])
def test_a_hint_that_is_lost_or_wrong_changes_nothing(hint: bytes | None) -> None:
    store = MemoryStore()
    log = IncidentLog(store, "late")
    for _ in range(9):
        failed(log)
    now = log.latest()
    if hint is None:
        store.delete("late/incidents/newest")
    else:
        store.put("late/incidents/newest", hint)
    assert log.latest() == now
    failed(log)
    assert (log.latest().number, log.latest().open[0].failures) == (now.number + 1, 10)


def test_nothing_is_written_if_nothing_was_wrong_and_backfills_are_apart() -> None:
    store = MemoryStore()
    assert IncidentLog(store, "late").record(Passed(AT), this_process()) == ()
    assert list(store.list("")) == []
    failed(IncidentLog(store, "late", WatchedRuns.BACKFILLS))
    assert IncidentLog(store, "late").record(Passed(AT), this_process()) == ()
    assert len(IncidentLog(store, "late", WatchedRuns.BACKFILLS).latest().open) == 1


def test_where_nobody_can_be_told_for_long_the_oldest_messages_are_given_up() -> None:
    log = IncidentLog(MemoryStore(), "late")
    for _ in range(MOST_DUE):
        log.record(stopped(), None)
        log.record(Passed(AT), None)
    due = log.latest().due
    assert (len(due), due[-1].incident.number) == (MOST_DUE, MOST_DUE - 1)


def test_a_damaged_document_is_refused() -> None:
    store = MemoryStore()
    log = IncidentLog(store, "late")
    failed(log)
    store.put("late/incidents/1.json", b"{}")
    with pytest.raises(Refused, match="has no format and digest"):
        log.latest()


def test_two_messages_read_as_somebody_who_knows_nothing_yet_needs_them() -> None:
    log = IncidentLog(MemoryStore(), "late")
    trouble = Trouble.of([WRONG, WRONG])
    (opened,) = log.record(Stopped(trouble, AT, "ana\x1b[31m", 3, PAGE), this_process())
    link, shown = f"https://lake.example.org/{PAGE}", Shown(named={"late": "late.py"})
    assert title("late", opened) == "Coset, late failed: a key lies elsewhere"
    assert title("late", opened, "prod") == "Coset prod, late failed: a key lies elsewhere"
    assert "\nPipeline: late\nEnvironment: prod\n" in text("late", opened, link, shown, "prod")
    assert text("late", opened, link, shown) == (
        "a key lies elsewhere\n"
        "    - key 'N78'\n"
        "  where: batch 0 of late\n"
        "  next:  correct it, then `coset replan late.py --why '…'`\n"
        "There is 1 finding more: `coset report late.py --batch 3`\n"
        "\n"
        "Pipeline: late\n"
        "Batch: 3\n"
        "Since: 2026-11-24 10:00:00 UTC, 1 failure\n"
        "Owner: ana\\x1b[31m\n"
        f"Page: {link}"
    )
    log.record(Stopped(trouble, AT + 60_000, "ana", 3, PAGE), None)
    ended = log.record(Passed(AT + 120_000, 4), this_process())[-1]
    assert title("late", ended) == "Coset, late works again: a key lies elsewhere"
    assert text("late", ended, "", shown) == (
        "It has ended: batch 4 is published.\n"
        "It was: a key lies elsewhere\n"
        "    - key 'N78'\n"
        "\n"
        "Pipeline: late\n"
        "Batch: 3\n"
        "Since: 2026-11-24 10:00:00 UTC, 2 failures\n"
        "Until: 2026-11-24 10:02:00 UTC\n"
        "Owner: ana"
    )


def test_what_waits_is_what_its_checks_found_and_a_warning_says_so() -> None:
    found = about(waits_for=Kind.EXPECTATION)
    waits = Finding(Kind.BATCH_WAITS, "the batch waits", "batch 3", "replan", found)
    assert Trouble.of([waits]).cause == Trouble.of([Finding(Kind.EXPECTATION, "not met", "", "")]).cause
    log = IncidentLog(MemoryStore(), "late")
    late = Stopped(Trouble(("late",), "nothing is published", "late", "look"), AT, severity=Severity.WARNING)
    (message,) = log.record(late, this_process())
    assert title("late", message) == "Coset, late warning: nothing is published"
