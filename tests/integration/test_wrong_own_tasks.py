"""Hot keys whose own task runs wrongly: records that it loses, doubles or swaps with others are all caught.

One batch is run again and again, each time wrong in another way, and right in the end. It joins two streams in full, so
each task has both sides of its keys.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from partitioning.documents.stores import store_at
from partitioning.model.reasons import OwnTasks
from spark_jobs.engine.take import LEFT, TAKEN
from tests.hot import HOT, Met
from tests.judged import COVERED, IN_PLACE, MEET, PRODUCED, Refusal, caught_by, ran, refusal
from tests.running import run_and_publish, run_groups
from tests.wrong_tasks import first, of_others, read_nothing, reading, spoil_takes_of, take_residues, write_rows

Patch = pytest.MonkeyPatch
# The task of the hot key.
OWN = 4


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Met:
    """A pipeline with one published batch."""
    made = Met(store_at(str(tmp_path_factory.mktemp("store") / "store")))
    made.land(1)
    made.run(None)
    made.land(2)
    return made


@pytest.fixture(scope="module")
def own(met: Met) -> BatchRef:
    """Its second batch, planned with a task for its hot key."""
    ref, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [key.key for key in stage.why.keys] == [HOT]
    return ref


# ---- each record of the key in its task


@caught_by(COVERED)
def test_a_record_that_its_own_task_loses_is_missed(own: BatchRef, monkeypatch: Patch) -> Refusal:
    spoil_takes_of(monkeypatch, reading(OWN, "views"), first(TAKEN, LEFT, hot=True))
    return ran(own)


@caught_by(COVERED)
def test_the_other_side_that_its_own_task_loses_is_missed(own: BatchRef, monkeypatch: Patch) -> Refusal:
    spoil_takes_of(monkeypatch, reading(OWN, "clicks"), first(TAKEN, LEFT, hot=True))
    return ran(own)


def test_a_record_that_the_task_of_the_others_takes_too_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(of_others(own, OWN), "views"), first(LEFT, TAKEN, hot=True))
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


def test_the_other_side_that_both_tasks_take_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(of_others(own, OWN), "clicks"), first(LEFT, TAKEN, hot=True))
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


def test_a_record_that_the_task_of_the_others_takes_in_place_of_its_own_is_seen(
    own: BatchRef, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        spoil_takes_of(patch, reading(of_others(own, OWN), "views"), first(LEFT, TAKEN, hot=True))
        spoil_takes_of(patch, reading(OWN, "views"), first(TAKEN, LEFT, hot=True))
        run_groups(own)
    assert set(refusal(own).failed) == {IN_PLACE, MEET}


# ---- no record of another key in it


def test_a_record_of_another_key_that_its_own_task_takes_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(OWN, "views"), first(LEFT, TAKEN, hot=False))
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_a_record_of_another_key_that_nobody_takes_is_missed(own: BatchRef, monkeypatch: Patch) -> Refusal:
    spoil_takes_of(monkeypatch, reading(of_others(own, OWN), "views"), first(TAKEN, LEFT))
    return ran(own)


# ---- each task by its residues and its files


def test_an_own_task_that_takes_all_of_its_partitions_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, OWN, lambda *_: None)
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


def test_an_own_task_that_goes_by_another_residue_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, OWN, lambda modulus, owned: ((owned[0] + 8) % modulus,))
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


def test_a_task_of_others_that_keeps_the_hot_key_is_seen(own: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, of_others(own, OWN), lambda *_: None)
    assert set(ran(own).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_an_own_task_that_reads_nothing_is_missed(own: BatchRef, monkeypatch: Patch) -> Refusal:
    read_nothing(monkeypatch, lambda order, _: order.task.task == OWN)
    return ran(own)


# ---- each row of it written once


@caught_by(PRODUCED)
def test_a_row_that_is_lost_when_it_is_written_is_seen(own: BatchRef, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, OWN, lambda rows: rows.slice(1))
    return ran(own)


@caught_by(PRODUCED)
def test_a_row_that_is_doubled_when_it_is_written_is_seen(own: BatchRef, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, OWN, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return ran(own)


def test_the_same_batch_is_published_once_nothing_is_wrong(met: Met, own: BatchRef) -> None:
    run_and_publish(own)
    assert met.rows() == met.direct()
