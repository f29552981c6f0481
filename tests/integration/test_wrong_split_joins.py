"""Hot keys of joins that several tasks share wrongly: records that they lose, double or swap are all caught.

One batch is run again and again, each time wrong in another way, and right in the end. Views are read in ranges, clicks
are copied.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch, Reader
from partitioning.documents.stores import store_at
from partitioning.model.hot_keys import HotKeys
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.planned_streams import PlannedPartition
from partitioning.model.reasons import OwnTasks
from partitioning.values import replace
from spark_jobs.engine import kernel
from spark_jobs.engine.kernel import TaskEnvironment
from spark_jobs.engine.take import LEFT, TAKEN, Take, Taken
from tests.hot import HOT, Met
from tests.judged import COVERED, IN_PLACE, MEET, PRODUCED, Refusal, caught_by, ran, refusal
from tests.running import run_and_publish, run_groups
from tests.wrong_tasks import first, of_others, read_nothing, reading, spoil_takes_of, take_residues, write_rows

Patch = pytest.MonkeyPatch
# The tasks that share the hot key, and one that has other keys only.
FIRST, LAST = 4, 5
FAR = 0


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Met:
    """A pipeline with one published batch."""
    made = Met(store_at(str(tmp_path_factory.mktemp("store") / "store")), "left", HotKeys.SPLIT)
    made.land(1)
    made.run(None)
    made.land(2)
    return made


@pytest.fixture(scope="module")
def split(met: Met) -> BatchRef:
    """Its second batch, planned with two tasks for its hot key."""
    ref, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [(key.key, key.ranged, key.tasks) for key in stage.why.keys] == [(HOT, "views", 2)]
    assert stage.shares == (range(FIRST, LAST + 1),)
    assert of_others(ref, FIRST) != FAR
    return ref


def other_order(patch: Patch, task: int, read: str, change: Callable[[PlannedPartition], PlannedPartition]) -> None:
    """A task reads partitions of a stream otherwise than its order says."""
    reader, make = kernel.reader, Take.__init__

    def changed(ordered: Ordered) -> Ordered:
        assert isinstance(ordered, OrderedStream)
        return replace(ordered, partitions=tuple(map(change, ordered.partitions)))

    def wrong(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        is_it = (order.task.task, ordered.name) == (task, read)
        return reader(order, changed(ordered) if is_it else ordered, place)

    def made(self: Take, order: Order, ordered: Ordered, planned: PlannedPartition, *more: object) -> None:
        is_it = (order.task.task, ordered.name) == (task, read)
        make(self, order, ordered, change(planned) if is_it else planned, *more)  # type: ignore[arg-type]

    patch.setattr(kernel, "reader", wrong)
    patch.setattr(Take, "__init__", made)


# ---- each record of the side in ranges in exactly one of the tasks


@caught_by(COVERED)
def test_a_record_of_its_range_that_a_task_loses_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    spoil_takes_of(monkeypatch, reading(LAST, "views"), first(TAKEN, LEFT, hot=True))
    return ran(split)


@caught_by(COVERED)
def test_a_range_that_no_task_reads_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    read_nothing(monkeypatch, reading(LAST, "views"))
    return ran(split)


@caught_by(COVERED)
def test_a_range_that_two_tasks_read_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    """The last task reads the whole partition, and so the first one's range again."""
    whole = split.load()[1].stream("views").partitions
    other_order(monkeypatch, LAST, "views", lambda part: whole[part.partition])
    return ran(split)


@caught_by(COVERED)
def test_ranges_that_overlap_are_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    other_order(monkeypatch, LAST, "views", lambda part: replace(part, start=part.start - 20))
    return ran(split)


@caught_by(COVERED)
def test_ranges_that_leave_a_gap_between_them_are_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    other_order(monkeypatch, LAST, "views", lambda part: replace(part, start=part.start + 20))
    return ran(split)


@caught_by(COVERED)
def test_ranges_that_move_on_by_a_record_are_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    """As many records are read as should be."""
    other_order(monkeypatch, FIRST, "views", lambda part: replace(part, start=part.start + 1, end=part.end + 1))
    return ran(split)


def test_a_record_that_the_task_of_the_others_takes_too_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(of_others(split, FIRST), "views"), first(LEFT, TAKEN, hot=True))
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


def test_a_record_that_the_task_of_the_others_takes_in_place_of_those_that_share_it_is_seen(
    split: BatchRef, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        spoil_takes_of(patch, reading(of_others(split, FIRST), "views"), first(LEFT, TAKEN, hot=True))
        spoil_takes_of(patch, reading(FIRST, "views"), first(TAKEN, LEFT, hot=True))
        run_groups(split)
    assert set(refusal(split).failed) == {IN_PLACE, MEET}


# ---- all records of the other side in each of them


@caught_by(COVERED)
@pytest.mark.parametrize("task", [FIRST, LAST])
def test_a_copy_that_lacks_a_record_is_seen(split: BatchRef, monkeypatch: Patch, task: int) -> Refusal:
    spoil_takes_of(monkeypatch, reading(task, "clicks"), first(TAKEN, LEFT, hot=True))
    return ran(split)


def test_a_copy_with_a_record_of_another_key_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(LAST, "clicks"), first(LEFT, TAKEN, hot=False))
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


def test_a_copy_of_another_record_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    """As many records are copied as should be."""

    def swap(batch: Batch, seen: Taken) -> None:
        first(TAKEN, LEFT, hot=True)(batch, seen)
        first(LEFT, TAKEN, hot=False)(batch, seen)

    spoil_takes_of(monkeypatch, reading(LAST, "clicks"), swap)
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_a_copy_that_is_not_read_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    read_nothing(monkeypatch, reading(LAST, "clicks"))
    return ran(split)


@caught_by(COVERED)
def test_copies_that_all_lack_the_same_record_are_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    with monkeypatch.context() as patch:
        for task in (FIRST, LAST):
            spoil_takes_of(patch, reading(task, "clicks"), first(TAKEN, LEFT, hot=True))
        run_groups(split)
    return refusal(split)


def test_a_copy_for_the_task_of_the_others_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(of_others(split, FIRST), "clicks"), first(LEFT, TAKEN, hot=True))
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


# ---- every other key in one task


def test_a_record_of_another_key_in_a_task_that_shares_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    spoil_takes_of(monkeypatch, reading(LAST, "views"), first(LEFT, TAKEN, hot=False))
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_a_record_of_another_key_that_nobody_takes_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    spoil_takes_of(monkeypatch, reading(of_others(split, FIRST), "views"), first(TAKEN, LEFT))
    return ran(split)


def test_a_task_that_takes_all_keys_of_its_range_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, LAST, lambda *_: None)
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


def test_a_task_that_goes_by_another_residue_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, LAST, lambda modulus, owned: ((owned[0] + 8) % modulus,))
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


def test_a_task_of_others_that_keeps_the_hot_key_is_seen(split: BatchRef, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, of_others(split, FIRST), lambda *_: None)
    assert set(ran(split).failed) == {COVERED, IN_PLACE, MEET}


# ---- each row of them written once


@caught_by(PRODUCED)
def test_a_row_that_is_lost_when_it_is_written_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, FIRST, lambda rows: rows.slice(1))
    return ran(split)


@caught_by(PRODUCED)
def test_a_row_that_is_doubled_when_it_is_written_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, LAST, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return ran(split)


def test_the_same_batch_is_published_once_nothing_is_wrong(met: Met, split: BatchRef) -> None:
    run_and_publish(split)
    assert met.rows() == met.direct()
