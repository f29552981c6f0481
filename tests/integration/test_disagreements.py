"""Tables that do not hold what the ledger says are noticed before the next batch is planned."""

from __future__ import annotations

import pytest

from coset.batches.planning import disagreements, take_up
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.batches import erase
from tests.late import arrive, pipeline, published


def test_a_table_ahead_of_the_ledger_is_refused(store: Store) -> None:
    arrive(store, 0, 10)
    published(store)
    erase(store.root, *(entry.key for entry in store.list("late/")))
    with pytest.raises(Refused, match="the table holds batch 0, but the ledger's last published batch is none"):
        take_up(pipeline(store.root), store)


def test_a_lost_verdict_of_a_published_batch_is_noticed(store: Store) -> None:
    arrive(store, 0, 10)
    published(store)
    erase(store.root, "late/verdicts/0.json", "late/commits/0.json")
    with pytest.raises(Refused, match="the table holds batch 0"):
        take_up(pipeline(store.root), store)


def test_a_table_that_was_removed_is_refused(store: Store) -> None:
    arrive(store, 0, 10)
    published(store)
    erase(store.root, *(entry.key for entry in store.list("tables/")))
    with pytest.raises(Refused, match="batch 0 is published, but the table holds none"):
        take_up(pipeline(store.root), store)


def test_a_new_table_of_an_old_pipeline_is_no_disagreement(store: Store) -> None:
    arrive(store, 0, 10)
    plan = published(store)
    assert disagreements("tails", plan, {"delays": 0, "new": None}, store.root) == ()
    assert len(disagreements("tails", plan, {"delays": 1, "new": 1}, store.root)) == 2
