"""Balances: what all batches before add up to is known without reading their plans again, and is what they say."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.backfills.outlook import gaps
from coset.batches.ends import EVERY, balance, settled
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, LedgerBalance
from partitioning.documents.store import Entry
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import Plan
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.plans import plan_of, tails, tails_found

LAST = 3 * EVERY + 40
BALANCES = [f"tail_activity/balances/{number}.json" for number in (1, 2, 3)]
CHANCE = Random(26)


class Counting(MemoryStore):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()

    def get(self, key: str) -> bytes | None:
        self.asked[key.split("/")[1]] += 1
        return super().get(key)

    def head(self, key: str) -> Entry | None:
        self.asked[key.split("/")[1]] += 1
        return super().head(key)


def batch_after(ledger: Ledger, before: Plan | None) -> Plan:
    """A batch, some of which are given up, skip offsets, lose some, or write another table."""
    made = plan_of(tails(), tails_found()) if before is None else before
    number, parent = (0, None) if before is None else (before.batch + 1, digest(before))
    starts = {"flights-3": 7} if number % 61 == 0 else {}
    losses = (OffsetRange.parse(f"flights-5@[{number},{number + 2})"),) if number % 37 == 0 else ()
    plan = ledger.put_plan(replace(made, batch=number, parent=parent, starts=starts, losses=losses))
    decision = Decision.ABANDON if CHANCE.random() < 0.1 else Decision.PUBLISH
    ledger.put_verdict(Verdict(digest(plan), number, decision, 0, GivenUp("because"), ()))
    return plan


def published_by(ledger: Ledger, plans: list[Plan]) -> list[Plan]:
    return [plan for plan in plans if ledger.published(plan.batch)]


@pytest.fixture(scope="module")
def batches() -> tuple[Ledger, list[Plan]]:
    """A ledger of hundreds of batches, each of which was published with a balance, where one was due."""
    ledger, plans = Ledger(Counting(), "tail_activity"), list[Plan]()
    for _ in range(LAST):
        plans.append(batch_after(ledger, plans[-1] if plans else None))
        if ledger.published(plans[-1].batch):
            assert settled(ledger, plans[-1].batch) == ""
    return ledger, plans


def asked(ledger: Ledger) -> Counter[str]:
    assert isinstance(ledger.store, Counting)
    return ledger.store.asked


def test_the_gaps_of_all_batches_are_known_from_the_last_hundred(batches: tuple[Ledger, list[Plan]]) -> None:
    ledger, plans = batches
    asked(ledger).clear()
    found = gaps(ledger)
    assert asked(ledger)["plans"] < EVERY
    published = published_by(ledger, plans)
    skipped = [f"flights-3@[0,7) batch {plan.batch}" for plan in reversed(published) if plan.starts]
    lost = [f"{offsets} batch {plan.batch}" for plan in reversed(published) for offsets in plan.losses]
    assert len(lost) > 3 < len(skipped)
    told = [f"{gap.range} batch {gap.why.split('batch ')[1].split()[0]}" for gap in found]
    assert told == [*skipped, *lost]


@given(data=st.data())
@settings(deadline=None, max_examples=examples(20))
def test_after_any_batch_and_whichever_balances_are_gone_it_is_what_all_plans_before_add_up_to(
    batches: tuple[Ledger, list[Plan]], data: st.DataObject
) -> None:
    ledger, plans = batches
    published = published_by(ledger, plans)
    last = data.draw(st.sampled_from(published))
    gone = data.draw(st.sets(st.sampled_from([key for key in BALANCES if ledger.store.head(key)])))
    stored = {key: ledger.store.get(key) for key in gone}
    wanted = LedgerBalance(ledger.pipeline)
    for plan in published:
        wanted = wanted.then(plan) if plan.batch <= last.batch else wanted
    try:
        for key in gone:
            ledger.store.delete(key)
        found = balance(ledger, last)
    finally:
        for key, data_of in stored.items():
            ledger.store.put(key, data_of or b"")
    assert found == wanted


def test_a_balance_says_which_batch_wrote_a_table_last(batches: tuple[Ledger, list[Plan]]) -> None:
    ledger, plans = batches
    published = published_by(ledger, plans)[-1]
    assert balance(ledger, published).written == {"tail_activity": published.batch}


def test_a_balance_costs_a_hundred_plans_once_and_then_a_request_a_batch(batches: tuple[Ledger, list[Plan]]) -> None:
    ledger, plans = batches
    ledger.store.delete("tail_activity/balances/3.json")
    asked(ledger).clear()
    settled(ledger, plans[-1].batch)
    assert asked(ledger)["plans"] <= EVERY + 1
    asked(ledger).clear()
    settled(ledger, plans[-1].batch)
    assert asked(ledger) == {"balances": 1}


def test_a_ledger_of_before_is_settled_hundred_by_hundred(batches: tuple[Ledger, list[Plan]]) -> None:
    ledger, plans = batches
    before = [ledger.store.get(f"tail_activity/balances/{number}.json") for number in (1, 2, 3)]
    for number in (1, 2, 3):
        ledger.store.delete(f"tail_activity/balances/{number}.json")
    for _ in range(3):
        asked(ledger).clear()
        settled(ledger, plans[-1].batch)
        assert asked(ledger)["plans"] <= EVERY + 10
    assert [ledger.store.get(f"tail_activity/balances/{number}.json") for number in (1, 2, 3)] == before


def test_a_balance_that_cannot_be_made_keeps_nothing_from_being_published(batches: tuple[Ledger, list[Plan]]) -> None:
    ledger, plans = batches
    stored, gone = ledger.store.get("tail_activity/plans/250.json.gz"), "tail_activity/balances/3.json"
    assert stored is not None
    ledger.store.delete(gone)
    ledger.store.delete("tail_activity/plans/250.json.gz")
    said = settled(ledger, plans[-1].batch)
    assert said.startswith("; the balance of the batches before 300 could not be stored: there are later plans")
    ledger.store.put("tail_activity/plans/250.json.gz", stored)
    assert settled(ledger, plans[-1].batch) == ""
    assert ledger.store.head(gone) is not None
