"""Faults that pass: whatever the network or a busy store does to requests, a batch ends right or is unreachable.

It is never refused for them, and nothing else is said to be wrong because of what could not be read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.errors import CosetError, OutcomeUnknown, Unreachable
from tests.examples import few
from tests.faults import FaultProxy
from tests.logs import log_of
from tests.real_batches import TAILS, delays, land_delays
from tests.running import next_batch, run_and_publish, run_groups

SHARE = 5
AGAIN, CHECK = "run the same command again", "check that it runs and that AWS_ENDPOINT_URL names it"
EXPECTED = [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "seats"}}]
LANDED, ROWS, LOG = r"/topics/.*\.parquet", r"/data/.*\.parquet", "/_delta_log"


@pytest.fixture
def landed(store: Store, proxy: FaultProxy) -> Store:
    return land_delays(store)


def made(store: Store) -> Pipeline:
    return delays(store, expect=EXPECTED)


def planned(store: Store, settings: Settings = DEFAULTS) -> BatchRef:
    return next_batch(made(store), store.root, settings)


def plan_and_publish(store: Store, docs: Path) -> None:
    run_and_publish(planned(store), docs)


def flights(store: Store) -> dict[str, int]:
    table = log_of(store, "delays").to_pyarrow_table()
    return dict(zip(table["tailnum"].to_pylist(), table["flights"].to_pylist(), strict=True))


@pytest.mark.parametrize("what", few(["before:503", "after:500", "after:lost", "after:cut", "after:own+1s"]))
def test_a_batch_ends_right_though_one_request_in_twenty_is_spoiled(
    what: str, landed: Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.spoil(f"{what} {SHARE}% of seed 1")
    for _ in range(10):
        try:
            plan_and_publish(landed, tmp_path)
            break
        except (Unreachable, OutcomeUnknown) as error:
            print(error)
    else:
        pytest.fail("the batch did not end in ten runs")
    proxy.heal()
    assert flights(landed) == dict.fromkeys(TAILS, 2)


# What is asked of the store, and the step of a batch that asks it.
REQUESTS = [
    (f"get {LANDED}", "plan"), ("list .", "plan"), (f"get|list {LOG}", "plan"), (f"get {LANDED}", "run"),
    (f"put.*|post {ROWS}", "run"), (f"get {ROWS}", "check"), (f"get|list {LOG}", "check"), (f"head {ROWS}", "publish"),
]  # fmt: skip
# The client that asks has been seen with each fault in another step.
ALIKE = {(f"get {LANDED}", "plan"), (f"get|list {LOG}", "check")}
SPOILED = [
    *((f"before:503 {asked}", step) for asked, step in REQUESTS),
    *((f"after:lost {asked}", step) for asked, step in REQUESTS if (asked, step) not in ALIKE),
    *(
        (f"after:cut {asked}", step)
        for asked, step in REQUESTS
        if asked.startswith(("get", "list")) and (asked, step) not in ALIKE
    ),
]


@pytest.mark.parametrize(("fault", "step"), few(SPOILED, 2))
def test_a_store_that_fails_for_good_is_unreachable_whatever_is_asked(
    fault: str, step: str, landed: Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    do = prepared(step, landed, tmp_path)
    proxy.spoil(fault)
    with pytest.raises(CosetError) as caught:
        do()
    proxy.heal()
    assert type(caught.value) is Unreachable
    assert {finding.then for finding in caught.value.findings} <= {AGAIN, CHECK}
    plan_and_publish(landed, tmp_path)
    assert flights(landed) == dict.fromkeys(TAILS, 2)


def prepared(step: str, store: Store, docs: Path) -> Callable[[], object]:
    """A step of a batch, to be done now that those before it are."""
    if step == "plan":
        return lambda: planned(store)
    ref = planned(store, Settings.parse(scheme="tasks(1)"))
    if step == "run":
        return lambda: run_groups(ref)
    run_groups(ref)
    steps.audit(ref)
    if step == "check":
        return lambda: steps.check(ref, docs)
    steps.check(ref, docs)
    return lambda: steps.publish(ref)
