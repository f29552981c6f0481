"""Which batches before a figure is held against: those that were published, as readers see them, and once for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coset import expect
from coset.batches.measuring import figures
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.model.backfill import Swap, SwapKind
from partitioning.model.measures import Measured, as_text
from partitioning.model.plan import Plan
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.memory_store import MemoryStore
from tests.plans import plan_of, tails, tails_found

ROWS = as_text(expect.rows_as_usual())
TABLE = "tail_activity"
BACKFILL = "tail_activity.backfill-0"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(), TABLE)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(tails().expecting({TABLE: [ROWS]}), tails_found())


def decided(ledger: Ledger, plan: Plan, batch: int, rows: int, decision: Decision = Decision.PUBLISH) -> None:
    measured = (Measured(TABLE, "rows", rows), Measured(TABLE, "sum(gone)", 1))
    verdict = Verdict(digest(plan), batch, decision, 0, GivenUp("because"), (), None, measured)
    ledger.put_verdict(verdict)


def before(ledger: Ledger, plan: Plan, batch: int, attempt: int = 0) -> Any:
    (row,) = figures(ledger, replace(plan, batch=batch), attempt, (Measured(TABLE, "rows", 7),), {})
    assert (row["figure"], row["value"], row["appended"]) == ("rows", "7", True)
    return json.loads(str(row["before"]))


def test_thirty_published_batches_count_and_none_that_was_given_up(ledger: Ledger, plan: Plan) -> None:
    for batch in range(50):
        given_up = batch % 5 == 3
        decided(ledger, plan, batch, batch, Decision.ABANDON if given_up else Decision.PUBLISH)
    assert before(ledger, plan, 0) == []
    assert before(ledger, plan, 5) == [[0, 0], [1, 1], [2, 2], [4, 4]]
    published = [[batch, batch] for batch in range(50) if batch % 5 != 3]
    assert before(ledger, plan, 50) == published[-30:]


def test_after_a_swap_the_rows_that_readers_see_count_but_not_for_an_attempt_that_was_judged(
    ledger: Ledger, plan: Plan
) -> None:
    for batch in range(3):
        decided(ledger, plan, batch, 10)
    assert before(ledger, plan, 3) == [[0, 10], [1, 10], [2, 10]]
    decided(Ledger(ledger.store, BACKFILL), plan, 1, 20)
    swap = Swap(TABLE, 0, 0, SwapKind.SWAP, (1,), False, "", "ana", "", "2026-11-24T10:00:00+00:00")
    ledger.store.put(f"{TABLE}/swaps/0.json", encode(swap))
    assert before(ledger, plan, 3) == [[0, 10], [1, 10], [2, 10]]
    assert before(ledger, plan, 3, attempt=1) == [[0, 10], [1, 20], [2, 10]]
    assert before(Ledger(ledger.store, BACKFILL), plan, 2) == []


def test_who_expects_nothing_ready_made_reads_nothing(ledger: Ledger, plan: Plan) -> None:
    plain = plan_of(tails().expecting({TABLE: ['{"kwargs":{},"type":"expect_the_best"}']}), tails_found())
    assert figures(ledger, plain, 0, (), {}) == []
    assert list(ledger.store.list("")) == []
