"""Late flights, landed and published, for tests of what the next batch takes."""

from __future__ import annotations

import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.planning import take_up
from coset.batches.publication import decide, publish
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from tests.batches import PASSED, run
from tests.landed import land_table


def arrive(store: Store, first: int, count: int) -> None:
    """Flights of so many planes arrive."""
    tails = [f"N{number}" for number in range(first, first + count)]
    table = pa.table({"tailnum": tails, "delay": pa.array(range(count), pa.int64())})
    land_table(table, "flights", store.root, key="tailnum", partitions=4)


def pipeline(root: str, columns: str = "delay", table: str = "delays") -> Pipeline:
    """Flights that are written as they are."""
    made = Pipeline("late", source=root)
    made.stream("flights", key="tailnum", partitions=4).select(columns).write(table)
    return made


def decided(store: Store, plan: Plan) -> Ledger:
    """The ledger after a planned batch has run and its publication is decided."""
    ledger = Ledger(store, "late")
    run(ledger, plan)
    decide(Attempt(ledger, plan, 0), PASSED)
    return ledger


def published(store: Store) -> Plan:
    """The next batch, planned and published."""
    plan = take_up(pipeline(store.root), store).plan
    assert plan is not None
    publish(decided(store, plan), plan)
    return plan
