"""Batches whose planned offsets are not all taken or dropped once, or which lack keys: each is refused.

What is made wrong is the stored plan, a landed file, the kernel or a receipt; never an audit table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.receipt import PartitionReceipt
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.values import replace
from spark_jobs.engine.take import LEFT, REFUSED, TAKEN, Taken
from tests.begun import Begun
from tests.changed_receipts import change_receipt
from tests.judged import COVERED, HAVE_KEYS, MEET, Refusal, caught_by, refusal, saying
from tests.landed import land_file
from tests.real_batches import TAILS, delays, land_delays, ran, spoil_kernel, with_tasks
from tests.there import there


@pytest.fixture
def landed(store: Store) -> Store:
    return land_delays(store)


# ---- every planned offset is taken or dropped, once


@caught_by(COVERED)
def test_a_file_whose_offsets_do_not_follow_each_other_is_refused(landed: Store) -> Refusal:
    end = len([tail for tail in (*TAILS, *TAILS) if placement_hash(tail) % 8 == 2])
    tail = next(tail for tail in TAILS if placement_hash(tail) % 8 == 2)
    flights = pa.table({"tailnum": [tail] * 4, "delay": pa.array(range(4), pa.int64())})
    # Its name and its footer say what they should.
    offsets = [end, end + 2, end + 1, end + 3]
    land_file(flights, "flights", f"{landed.root}/topics", 2, end, offsets=offsets)
    return saying(
        refusal(ran(landed, delays(landed))),
        f"flights-2@[0,{end + 4}): 3 offsets missing, repeated or out of order",
        f"flights-2 at offset {end + 2} does not follow the offset before it",
    )


@caught_by(COVERED)
def test_a_kernel_that_loses_a_record_is_refused(landed: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def lose(batch: Batch, seen: Taken) -> None:
        if "/planes/" in batch.where:
            seen.dispositions[np.array([key == "N7" for key in seen.keys.to_pylist()])] = LEFT

    spoil_kernel(monkeypatch, lose)
    said = refusal(ran(landed, delays(landed)))
    count = sum(placement_hash(tail) % 4 == (home := placement_hash("N7") % 4) for tail in TAILS)
    assert f"planes-{home}@[0,{count}): 1 record of {count} not taken by any task" in said.findings[0]
    return said


@caught_by(COVERED)
def test_a_plan_in_which_records_without_a_key_are_no_tasks_is_refused(landed: Store) -> Refusal:
    nobodys = ran(landed, delays(landed), lambda plan: with_tasks(plan, lambda task: replace(task, keyless={})))
    return saying(refusal(nobodys), "flights-0@[0,", "1 record of", "not taken by any task")


def test_a_plan_in_which_two_tasks_take_the_same_keys_is_refused(landed: Store) -> None:
    def greedy(task: Task) -> Task:
        return replace(task, filters={}) if task.task == 0 else task

    eight = Settings.parse(scheme="tasks(8)")
    said = refusal(ran(landed, delays(landed), lambda plan: with_tasks(plan, greedy), eight))
    # The keys that are taken twice are in two tasks.
    assert said.failed == (COVERED, MEET)
    assert "more taken than the" in said.findings[0]
    assert "is in task 0 (input planes" in said.findings[1]
    assert "and in task 4 (input flights" in said.findings[1]


def as_planned(store: Store) -> None:
    ran(land_delays(store), delays(store))


@caught_by(COVERED)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda seen: replace(seen, read=seen.read - 1), "a task read"),
        (lambda seen: replace(seen, taken=seen.taken - 1), "1 record of"),
        (lambda seen: replace(seen, taken=seen.taken + 1), "1 record more taken"),
        (lambda seen: replace(seen, digest="0" * 16), "the offsets taken are not those planned"),
        (lambda seen: replace(seen, disorder=1), "1 offset missing, repeated or out of order"),
    ],
    ids=["read", "taken", "taken too often", "digest", "disorder"],
)
def test_a_receipt_whose_figures_are_others_is_refused(
    begun: Begun, change: Callable[[PartitionReceipt], PartitionReceipt], says: str
) -> Refusal:
    store = begun.by(as_planned)
    ref = BatchRef.of(store, there(Ledger(store, "delays").plan(0)))
    change_receipt(ref, change)
    return saying(refusal(ref), says)


# ---- records have keys


def test_a_record_without_a_key_is_refused_where_its_stream_says_so(landed: Store) -> None:
    said = refusal(ran(landed, delays(landed, null_keys=NullKeys.REFUSE)))
    # What is refused is taken by nobody, which is no second fault.
    assert said.failed == (HAVE_KEYS,)
    assert "flights-0 at offset" in said.findings[0]
    assert "has no key, and flights refuses records without one" in said.findings[0]


@caught_by(HAVE_KEYS)
def test_a_kernel_that_takes_records_without_a_key_where_they_are_refused_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def take_all(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.dispositions == REFUSED] = TAKEN

    spoil_kernel(monkeypatch, take_all)
    return saying(
        refusal(ran(landed, delays(landed, null_keys=NullKeys.REFUSE))), "flights-0@[0,", "1 record without a key"
    )
