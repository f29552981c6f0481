"""Hot keys whose own task runs wrongly: records that it loses, doubles or swaps with others are all caught.

One batch is run again and again, each time wrong in another way, and right in the end. It joins two streams in full, so
each task has both sides of its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch, Reader
from partitioning.documents.stores import store_at
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.plan import PlannedWrite
from partitioning.model.reasons import OwnTasks
from partitioning.values import replace
from spark_jobs.engine import kernel, writers
from spark_jobs.engine.kernel import TaskEnvironment
from spark_jobs.engine.take import LEFT, TAKEN, Take, Taken
from tests.hot import HOT, Met
from tests.judged import COVERED, IN_PLACE, MEET, PRODUCED, Refusal, caught_by, ran, refusal
from tests.real_batches import spoil_takes
from tests.running import run_and_publish, run_groups

Patch = pytest.MonkeyPatch
Spoil = Callable[[Batch, Taken], object]
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


def of_others(ref: BatchRef) -> int:
    """The task that has the other keys of the hot key's coset."""
    (stage,) = ref.load()[1].stages
    (residue,) = stage.tasks[OWN].owns
    return residue % stage.by_scheme


def spoil_task(patch: Patch, task: int, read: str, spoil: Spoil) -> None:
    """Let `spoil` change what a task says becomes of the records that it reads of a stream."""
    make = Take.__init__
    spoiled = set[int]()

    def made(self: Take, order: Order, ordered: Ordered, *place: object) -> None:
        make(self, order, ordered, *place)  # type: ignore[arg-type]
        if (order.task.task, ordered.name) == (task, read):
            spoiled.add(id(self))

    def looked(take: Take, batch: Batch, seen: Taken) -> None:
        if id(take) in spoiled:
            spoil(batch, seen)

    patch.setattr(Take, "__init__", made)
    spoil_takes(patch, looked)


def first(found: int, said: int, *, hot: bool | None = None) -> Spoil:
    """What is said of the first record that is `found`, of the hot key or of another, in place of that."""

    def spoil(_: Batch, seen: Taken) -> None:
        keys = np.array(seen.keys.to_pylist(), object)
        rows = np.flatnonzero((seen.dispositions == found) & ((keys == HOT) == hot if hot is not None else True))
        seen.dispositions[rows[:1]] = said

    return spoil


def order_otherwise(patch: Patch, task: int, change: Callable[[Ordered], Ordered]) -> None:
    """A task reads other inputs than its order says."""
    reader = kernel.reader

    def wrong(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        return reader(order, change(ordered) if order.task.task == task else ordered, place)

    patch.setattr(kernel, "reader", wrong)


def take_residues(patch: Patch, task: int, residues: Callable[[int, tuple[int, ...]], tuple[int, ...] | None]) -> None:
    """A task goes by other residues than its order says: `residues` gets their modulus and those that it owns."""
    make = Take.__init__

    def made(self: Take, order: Order, ordered: Ordered, *place: object) -> None:
        if order.task.task == task:
            kept = {
                name: replace(filter, residues=other)
                for name, filter in order.task.filters.items()
                if (other := residues(filter.modulus, filter.residues)) is not None
            }
            order = replace(order, task=replace(order.task, filters=kept))
        make(self, order, ordered, *place)  # type: ignore[arg-type]

    patch.setattr(Take, "__init__", made)


def write_rows(patch: Patch, change: Callable[[pa.Table], pa.Table]) -> None:
    """The writer of the table gets other rows of the hot key than the steps made."""
    write = writers.Writers.table

    def wrong(self: writers.Writers, written: PlannedWrite, rows: pa.RecordBatchReader) -> object:
        if self.order.task.task == OWN:
            table = rows.read_all()
            rows = pa.RecordBatchReader.from_batches(table.schema, change(table).to_batches())
        return write(self, written, rows)

    patch.setattr(writers.Writers, "table", wrong)


# ---- each record of the key in its task


@caught_by(COVERED)
def test_a_record_that_its_own_task_loses_is_missed(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> Refusal:
    spoil_task(monkeypatch, OWN, "views", first(TAKEN, LEFT, hot=True))
    return ran(own, tmp_path)


@caught_by(COVERED)
def test_the_other_side_that_its_own_task_loses_is_missed(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> Refusal:
    spoil_task(monkeypatch, OWN, "clicks", first(TAKEN, LEFT, hot=True))
    return ran(own, tmp_path)


def test_a_record_that_the_task_of_the_others_takes_too_is_seen(
    own: BatchRef, tmp_path: Path, monkeypatch: Patch
) -> None:
    spoil_task(monkeypatch, of_others(own), "views", first(LEFT, TAKEN, hot=True))
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


def test_the_other_side_that_both_tasks_take_is_seen(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> None:
    spoil_task(monkeypatch, of_others(own), "clicks", first(LEFT, TAKEN, hot=True))
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


def test_a_record_that_the_task_of_the_others_takes_in_place_of_its_own_is_seen(
    own: BatchRef, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        spoil_task(patch, of_others(own), "views", first(LEFT, TAKEN, hot=True))
        spoil_task(patch, OWN, "views", first(TAKEN, LEFT, hot=True))
        run_groups(own)
    assert set(refusal(own, tmp_path).failed) == {IN_PLACE, MEET}


# ---- no record of another key in it


def test_a_record_of_another_key_that_its_own_task_takes_is_seen(
    own: BatchRef, tmp_path: Path, monkeypatch: Patch
) -> None:
    spoil_task(monkeypatch, OWN, "views", first(LEFT, TAKEN, hot=False))
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_a_record_of_another_key_that_nobody_takes_is_missed(
    own: BatchRef, tmp_path: Path, monkeypatch: Patch
) -> Refusal:
    spoil_task(monkeypatch, of_others(own), "views", first(TAKEN, LEFT))
    return ran(own, tmp_path)


# ---- each task by its residues and its files


def test_an_own_task_that_takes_all_of_its_partitions_is_seen(
    own: BatchRef, tmp_path: Path, monkeypatch: Patch
) -> None:
    take_residues(monkeypatch, OWN, lambda *_: None)
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


def test_an_own_task_that_goes_by_another_residue_is_seen(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, OWN, lambda modulus, owned: ((owned[0] + 8) % modulus,))
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


def test_a_task_of_others_that_keeps_the_hot_key_is_seen(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> None:
    take_residues(monkeypatch, of_others(own), lambda *_: None)
    assert set(ran(own, tmp_path).failed) == {COVERED, IN_PLACE, MEET}


@caught_by(COVERED)
def test_an_own_task_that_reads_nothing_is_missed(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> Refusal:
    def nothing(ordered: Ordered) -> Ordered:
        assert isinstance(ordered, OrderedStream)
        return replace(ordered, partitions=tuple(replace(part, files=()) for part in ordered.partitions))

    order_otherwise(monkeypatch, OWN, nothing)
    return ran(own, tmp_path)


# ---- each row of it written once


@caught_by(PRODUCED)
def test_a_row_that_is_lost_when_it_is_written_is_seen(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, lambda rows: rows.slice(1))
    return ran(own, tmp_path)


@caught_by(PRODUCED)
def test_a_row_that_is_doubled_when_it_is_written_is_seen(own: BatchRef, tmp_path: Path, monkeypatch: Patch) -> Refusal:
    write_rows(monkeypatch, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return ran(own, tmp_path)


def test_the_same_batch_is_published_once_nothing_is_wrong(met: Met, own: BatchRef, tmp_path: Path) -> None:
    run_and_publish(own, tmp_path)
    assert met.rows() == met.direct()
