"""Lost answers and failing stores: each write has one effect, and the error says which of three kinds it is."""

from __future__ import annotations

from time import monotonic

import pytest

from coset.batches.attempt import Attempt
from coset.batches.publication import decide, publish, transaction_version
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import OutcomeUnknown, Refused, Unreachable
from tests.batches import NAME, PASSED, decided, expected, pipeline, planned, rows, run
from tests.examples import few, in_turn
from tests.faults import FaultProxy

NOUNS = ("verdicts", "plans", "commits")
STORED = ["after:lost", "after:500"]
DELTA = r"/_delta_log/0+1\.json"


def write(noun: str, root: str) -> None:
    """Do the write of `noun` on the batch that `waiting` has prepared."""
    ledger = Ledger(store_at(root), NAME)
    plan = planned(pipeline())
    {
        "plans": lambda: ledger.put_plan(plan),
        "verdicts": lambda: decide(Attempt(ledger, plan, 0), PASSED),
        "commits": lambda: publish(ledger, plan),
    }[noun]()


def waiting(noun: str, store: Store) -> None:
    """Bring batch 0 to where the write of `noun` is the next."""
    ledger, plan = Ledger(store, NAME), planned(pipeline())
    if noun == "verdicts":
        ledger.put_plan(plan)
        run(ledger, plan)
    if noun == "commits":
        decided(store.root)


def name(noun: str) -> str:
    """The document of batch 0, below its pipeline's folder."""
    return f"{noun}/0.json" + (".gz" if noun == "plans" else "")


@pytest.mark.parametrize(("what", "noun"), in_turn([*STORED, "before:503", "before:409", "before:lost+0.2s"], NOUNS))
def test_a_document_that_meets_a_fault_once_is_stored_once(
    what: str, noun: str, store: Store, proxy: FaultProxy
) -> None:
    waiting(noun, store)
    proxy.spoil(f"{what} put.* /{name(noun)}$ x1")
    write(noun, store.root)
    first = store.get(f"{NAME}/{name(noun)}")
    assert first is not None
    write(noun, store.root)
    assert store.get(f"{NAME}/{name(noun)}") == first


@pytest.mark.parametrize(("what", "noun"), in_turn(STORED, NOUNS))
def test_a_document_that_is_stored_but_never_answered_is_read_back(
    what: str, noun: str, store: Store, proxy: FaultProxy
) -> None:
    waiting(noun, store)
    proxy.spoil(f"{what} put.* /{name(noun)}$")
    write(noun, store.root)
    assert store.get(f"{NAME}/{name(noun)}") is not None


@pytest.mark.parametrize("noun", few(NOUNS))
@pytest.mark.parametrize(
    ("what", "error"), [("before:503", OutcomeUnknown), ("before:409", OutcomeUnknown), ("before:403", Refused)]
)
def test_a_document_that_is_never_stored_is_an_error_and_the_next_run_settles_it(
    noun: str, what: str, error: type[Exception], store: Store, proxy: FaultProxy
) -> None:
    waiting(noun, store)
    proxy.spoil(f"{what} put.* /{name(noun)}$")
    with pytest.raises(error, match=name(noun)):
        write(noun, store.root)
    assert store.get(f"{NAME}/{name(noun)}") is None
    proxy.heal()
    write(noun, store.root)
    assert store.get(f"{NAME}/{name(noun)}") is not None


@pytest.mark.parametrize("times", [" x1", ""], ids=["once", "always"])
@pytest.mark.parametrize("what", STORED)
def test_a_delta_commit_that_is_stored_but_not_answered_counts_once(
    what: str, times: str, store: Store, proxy: FaultProxy
) -> None:
    waiting("commits", store)
    proxy.spoil(f"{what} put.* {DELTA}{times}")
    write("commits", store.root)
    assert rows(store.root) == expected(0)
    assert transaction_version(store, NAME, "delays") == 0


@pytest.mark.parametrize("what", ["before:503", "before:409"])
def test_a_delta_commit_that_meets_a_busy_store_is_tried_again(what: str, store: Store, proxy: FaultProxy) -> None:
    waiting("commits", store)
    proxy.spoil(fault := f"{what} put.* {DELTA} x1")
    write("commits", store.root)
    assert proxy.heal() == {fault: 2}
    assert rows(store.root) == expected(0)


@pytest.mark.parametrize(
    ("what", "error"), [("before:503", OutcomeUnknown), ("before:409", OutcomeUnknown), ("before:403", Refused)]
)
def test_a_delta_commit_that_is_never_stored_ends_in_bounded_time(
    what: str, error: type[Exception], store: Store, proxy: FaultProxy
) -> None:
    waiting("commits", store)
    proxy.spoil(f"{what} put.* {DELTA}")
    started = monotonic()
    with pytest.raises(error, match="tables/delays"):
        write("commits", store.root)
    assert monotonic() - started < 60
    assert transaction_version(store, NAME, "delays") is None
    assert store.get(f"{NAME}/commits/0.json") is None
    proxy.heal()
    write("commits", store.root)
    assert rows(store.root) == expected(0)


def test_a_delta_commit_that_may_be_stored_in_a_log_that_cannot_be_read_is_an_unknown_outcome(
    store: Store, proxy: FaultProxy
) -> None:
    waiting("commits", store)
    proxy.spoil(f"after:500 put.*|get {DELTA}")
    with pytest.raises(OutcomeUnknown, match="it is not known whether the table has batch 0"):
        write("commits", store.root)
    proxy.heal()
    assert rows(store.root) == expected(0)
    write("commits", store.root)
    assert rows(store.root) == expected(0)


@pytest.mark.parametrize("what", STORED)
def test_a_table_whose_creation_is_not_answered_is_created_once(what: str, store: Store, proxy: FaultProxy) -> None:
    waiting("commits", store)
    proxy.spoil(rf"{what} put.* /_delta_log/0+\.json x1")
    write("commits", store.root)
    assert rows(store.root) == expected(0)


@pytest.mark.parametrize("key", ["/data/", "/_delta_log", "/verdicts/0.json"])
def test_a_store_that_stops_answering_reads_is_unreachable_and_publishes_nothing(
    key: str, store: Store, proxy: FaultProxy
) -> None:
    waiting("commits", store)
    proxy.spoil(f"before:503 get|list {key}")
    with pytest.raises(Unreachable):
        write("commits", store.root)
    proxy.heal()
    assert transaction_version(store, NAME, "delays") is None
    write("commits", store.root)
    assert rows(store.root) == expected(0)
