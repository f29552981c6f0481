"""The ledger over a store in memory: where a pipeline stands, what it refuses to stand on, and its incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.attempt import Attempt
from coset.batches.watch import IncidentLog, this_process
from partitioning.authoring.settings import Settings
from partitioning.commands import Replan, Shown
from partitioning.documents import ledger as ledger_module
from partitioning.documents.document import decode, digest, encode, pack
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.store import AT_ONCE, Entry, numbered
from partitioning.errors import Conflict, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, key_of
from partitioning.model.incident import MOST_DUE, Passed, Severity, Stopped, Trouble, WatchedRuns, text, title
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Forgetting
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Commit, Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.plans import plan_of, tails, tails_found

BECAUSE = GivenUp("because")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(), "tail_activity")


def put_plan(ledger: Ledger, batch: int = 0, parent: Plan | None = None) -> Plan:
    made = plan_of(tails(), tails_found(), batch=batch, parent=digest(parent) if parent else None)
    return ledger.put_plan(made)


def decide(ledger: Ledger, plan: Plan, decision: Decision = Decision.PUBLISH) -> Verdict:
    return ledger.put_verdict(Verdict(digest(plan), plan.batch, decision, 0, BECAUSE, ()))


def commit(ledger: Ledger, plan: Plan) -> Commit:
    return ledger.put_commit(Commit(digest(plan), plan.batch, "sha256:0", ()))


def test_a_batch_is_open_until_the_commit_of_its_verdict_is_there(ledger: Ledger) -> None:
    assert ledger.standing() == Standing()
    assert not ledger.standing().open
    plan = put_plan(ledger)
    assert ledger.standing() == Standing(plan)
    assert ledger.standing().open
    verdict = decide(ledger, plan)
    assert ledger.standing() == Standing(plan, verdict, None, plan)
    assert ledger.standing().open
    made = commit(ledger, plan)
    assert ledger.standing() == Standing(plan, verdict, made, plan)
    assert not ledger.standing().open


def test_an_abandoned_batch_is_closed_and_published_nothing(ledger: Ledger) -> None:
    plan = put_plan(ledger)
    verdict = decide(ledger, plan, Decision.ABANDON)
    assert ledger.standing() == Standing(plan, verdict)
    assert not ledger.standing().open


def test_what_counts_as_published_skips_abandoned_batches(ledger: Ledger) -> None:
    first = put_plan(ledger)
    decide(ledger, first)
    commit(ledger, first)
    second = put_plan(ledger, 1, first)
    decide(ledger, second, Decision.ABANDON)
    third = put_plan(ledger, 2, second)
    decide(ledger, third, Decision.ABANDON)
    assert ledger.standing().published == first
    fourth = put_plan(ledger, 3, third)
    assert (ledger.standing().plan, ledger.standing().published) == (fourth, first)
    assert ledger.standing().open


def test_a_missing_plan_is_refused(ledger: Ledger) -> None:
    put_plan(ledger, 1, put_plan(Ledger(MemoryStore(), "other")))
    with pytest.raises(Refused, match="no plan of batch 0") as refusal:
        ledger.standing()
    assert refusal.value.findings[0].where == "memory://store/tail_activity/plans/0.json.gz"


def test_a_plan_with_another_parent_is_refused(ledger: Ledger) -> None:
    first = put_plan(ledger)
    decide(ledger, first)
    put_plan(ledger, 1, replace(first, parent="sha256:else"))
    with pytest.raises(Refused, match=r"names sha256:.* as its parent"):
        ledger.standing()


def test_a_plan_after_an_undecided_one_is_refused(ledger: Ledger) -> None:
    put_plan(ledger, 1, put_plan(ledger))
    with pytest.raises(Refused, match="batch 1 is planned, but batch 0 is undecided"):
        ledger.standing()


@pytest.mark.parametrize("changes", [{"batch": 7}, {"pipeline": "other"}])
def test_a_plan_under_the_wrong_name_is_refused(ledger: Ledger, changes: dict[str, object]) -> None:
    plan = plan_of(tails(), tails_found())
    ledger.store.put(ledger.key("plans", 0), pack(encode(replace(plan, **changes))))
    with pytest.raises(Refused, match="this is the plan of batch"):
        ledger.standing()


def test_a_verdict_on_another_plan_is_refused(ledger: Ledger) -> None:
    put_plan(ledger)
    ledger.put_verdict(Verdict("sha256:else", 0, Decision.PUBLISH, 0, BECAUSE, ()))
    with pytest.raises(Refused, match="the verdict is on plan sha256:else"):
        ledger.standing()


@pytest.mark.parametrize("spoil", [lambda data: pack(data[:-40]), lambda data: pack(data)[:-40], lambda data: data])
def test_a_corrupt_plan_is_refused_with_its_address(ledger: Ledger, spoil: Callable[[bytes], bytes]) -> None:
    plan = put_plan(ledger)
    ledger.store.put(ledger.key("plans", 0), spoil(encode(plan)))
    with pytest.raises(Refused) as refusal:
        ledger.standing()
    assert refusal.value.findings[0].where == "memory://store/tail_activity/plans/0.json.gz"


def test_the_newest_plan_is_found_where_the_listing_lags_behind() -> None:
    class Lagging(MemoryStore):
        def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
            return iter(())

    ledger = Ledger(Lagging(), "tail_activity")
    first = put_plan(ledger)
    decide(ledger, first)
    second = put_plan(ledger, 1, first)
    assert ledger.standing().plan == second


def test_batches_are_ordered_by_number_not_by_name(ledger: Ledger) -> None:
    plan = put_plan(ledger)
    for batch in range(1, 12):
        decide(ledger, plan)
        plan = put_plan(ledger, batch, plan)
    assert ledger.standing().plan == plan


def after(batches: int, store: MemoryStore | None = None) -> tuple[Ledger, Plan]:
    """A ledger of so many batches, of which only the last is a real one, and that one."""
    ledger = Ledger(store or MemoryStore(), "tail_activity")
    for batch in range(batches - 1):
        ledger.store.put(ledger.key("plans", batch), b"")
    plan = put_plan(ledger, batches - 1)
    decide(ledger, plan)
    return ledger, plan


@given(st.integers(1, 3000))
@settings(max_examples=examples(40))
def test_the_newest_of_many_plans_is_found(batches: int) -> None:
    ledger, plan = after(batches)
    assert ledger.standing().plan == plan


@given(st.integers(900, 2500), st.data())
@settings(max_examples=examples(40))
def test_the_newest_of_many_plans_is_found_where_others_were_removed(batches: int, data: st.DataObject) -> None:
    ledger, plan = after(batches)
    first = data.draw(st.integers(0, batches - 2))
    for batch in range(first, min(first + data.draw(st.integers(1, 16)), batches - 1)):
        ledger.store.delete(ledger.key("plans", batch))
    assert ledger.standing().plan == plan


def test_what_the_newest_plan_costs_does_not_grow_with_how_many_there_are() -> None:
    class Counting(MemoryStore):
        asked = 0

        def head(self, key: str) -> Entry | None:
            self.asked += 1
            return super().head(key)

    store = Counting()
    ledger, plan = after(9000, store)
    assert ledger.standing().plan == plan
    assert store.asked < 60


def test_the_first_plan_of_a_batch_stays_and_the_second_planner_is_given_it(ledger: Ledger) -> None:
    first = put_plan(ledger)
    assert ledger.put_plan(plan_of(tails(), tails_found(flights=300))) == first
    assert ledger.plan(0) == first


def test_the_first_verdict_stays_and_a_different_decision_is_a_conflict(ledger: Ledger) -> None:
    plan = put_plan(ledger)
    first = decide(ledger, plan)
    assert ledger.put_verdict(replace(first, why=GivenUp("later"))) == first
    with pytest.raises(Conflict, match="batch 0 is already decided: publish"):
        decide(ledger, plan, Decision.ABANDON)
    assert ledger.verdict(0) == first


def test_the_first_commit_and_the_first_receipt_stay(ledger: Ledger) -> None:
    plan = put_plan(ledger)
    first = commit(ledger, plan)
    assert ledger.put_commit(replace(first, verdict="sha256:1")) == first
    receipt = Receipt(digest(plan), 1, 0, ())
    ledger.put_receipt(receipt, 0)
    assert ledger.put_receipt(replace(receipt, plan="sha256:1"), 0) == receipt
    assert (ledger.receipt(0, 0, 1), ledger.receipt(0, 1, 1)) == (receipt, None)


def test_attempts_are_counted_by_the_checks_that_failed(ledger: Ledger) -> None:
    assert ledger.attempt(0) == 0
    ledger.close_attempt(0, 0, b"{}")
    assert ledger.attempt(0) == 1
    ledger.close_attempt(0, 0, b"again")
    assert (ledger.attempt(0), ledger.attempt(1)) == (1, 0)
    assert ledger.store.get("tail_activity/receipts/0/attempt-0/failed.json") == b"{}"


def test_pipelines_in_one_store_do_not_see_each_other() -> None:
    store = MemoryStore()
    put_plan(Ledger(store, "tail_activity"))
    assert Ledger(store, "tail").standing() == Standing()


def test_a_plan_is_decoded_once_as_long_as_its_bytes_stay(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    put_plan(ledger)
    decoded = list[str]()

    def counting(kind: type[Plan], data: bytes, where: str) -> Plan:
        decoded.append(where)
        return decode(kind, data, where)

    ledger_module._plan_in.cache_clear()
    monkeypatch.setattr(ledger_module, "decode", counting)
    first, again = ledger.plan(0), Ledger(ledger.store, ledger.pipeline).plan(0)
    assert first is not None
    assert first is again
    key = ledger.key("plans", 0)
    assert decoded == [ledger.uri(key)]
    other = plan_of(tails(), tails_found(), batch=0, parent="sha256:1")
    ledger.store.put(key, pack(encode(other)))
    assert ledger.plan(0) == other


class Noting(MemoryStore):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = list[str]()

    def get(self, key: str) -> bytes | None:
        self.asked.append(key)
        return super().get(key)


def test_the_verdicts_on_a_batch_are_its_own_and_those_of_its_backfills_and_others_are_not_asked() -> None:
    store = Noting()
    ledger = Ledger(store, "tail_activity")
    wanted = [decide(ledger, put_plan(ledger))]
    for number in range(40):
        again = Backfill("tail_activity", number, (0,) if number == 30 else (number + 1,), "", "ana", "why", "now")
        store.put_new(key_of("tail_activity", number), encode(again))
        if 0 in again.batches:
            run = Ledger(store, again.name)
            wanted.append(decide(run, run.put_plan(replace(put_plan(ledger), pipeline=again.name))))
    store.asked.clear()
    assert list(ledger.verdicts(0)) == wanted
    assert len([key for key in store.asked if "/verdicts/" in key]) == 2


class Waiting(MemoryStore):
    """Answers a `get` only once so many are under way at once, and says how many there were."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.asked = list[str]()
        self._together = Barrier(together, timeout=5)

    def get(self, key: str) -> bytes | None:
        self.asked.append(key)
        if "/receipts/" in key:
            self._together.wait()
        return super().get(key)


def test_receipts_are_fetched_together_and_each_once() -> None:
    groups, store = 2 * AT_ONCE, Waiting(AT_ONCE)
    ledger = Ledger(store, "tail_activity")
    plan = plan_of(tails(), tails_found(), settings=Settings.parse(scheme="tasks(64)", groups=groups))
    for group in plan.groups[1:]:
        ledger.put_receipt(Receipt(digest(plan), group.group, 0, ()), 0)
    attempt = Attempt(ledger, plan, 0)
    assert (len(attempt.receipts), attempt.missing) == (groups - 1, [0])
    assert len(store.asked) == groups


@given(st.integers(0, 70))
@settings(max_examples=examples(20))
def test_numbered_documents_are_all_found_in_their_order(count: int) -> None:
    store = MemoryStore()
    keys = [f"forgets/{number}.json" for number in range(count)]
    for number, key in enumerate(keys):
        store.put_new(key, encode(Forgetting("p", number, 0, (), "ana", "why", "now")))
    found = numbered(store, Forgetting, "forgets/{}.json".format)
    assert [each.number for each in found] == list(range(count))


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
