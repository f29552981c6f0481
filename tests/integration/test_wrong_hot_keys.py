"""Hot keys that are split wrongly: records and parts that are lost, doubled, misplaced or changed are all caught.

One batch is run again and again, each time wrong in another way, and right in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.documents.stores import store_at
from partitioning.model.artefact import Role
from partitioning.model.leaving import Leaving, LeftPart, LeftPartition
from partitioning.model.offsets import Span
from partitioning.model.order import Order, Ordered, OrderedParts
from partitioning.model.planned_streams import PlannedPartition
from partitioning.values import replace
from spark_jobs.engine import writers
from spark_jobs.engine.destinations import destinations
from spark_jobs.engine.take import LEFT, Take, Taken
from tests.hot import Skewed, counted, skewed
from tests.judged import COVERED, IN_PLACE, PRODUCED, Refusal, caught_by, ran
from tests.misread import read_otherwise
from tests.real_batches import spoil_kernel
from tests.running import run_and_publish
from tests.wrong_tasks import changed, read_nothing, spoil_takes_of

Parts = tuple[LeftPart, ...]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def skew(tmp_path_factory: pytest.TempPathFactory) -> Skewed:
    """A pipeline with one published batch."""
    made = Skewed(store_at(str(tmp_path_factory.mktemp("store") / "store")), counted)
    made.land(skewed(5_000, seed=1))
    made.run()
    made.land(skewed(5_000, seed=2))
    return made


@pytest.fixture(scope="module")
def split(skew: Skewed) -> BatchRef:
    """Its second batch, planned with its hot key split."""
    ref, plan = skew.planned()
    assert [stage.name for stage in plan.stages] == ["views.hot", "views"]
    return ref


def of_range(order: Order) -> bool:
    """Whether a task reads the first range of the hot key."""
    return (order.stage, order.task.task) == ("views.hot", 0)


def take_as(ref: BatchRef, patch: Patch, change: Callable[[PlannedPartition, PlannedPartition], Span]) -> None:
    """The task of the first range takes another one: `change` gets what is planned of it and of its partition."""
    make = Take.__init__

    def made(self: Take, order: Order, ordered: Ordered, planned: PlannedPartition, *place: object) -> None:
        if of_range(order):
            whole = ref.load()[1].stream("views").partitions[planned.partition]
            planned = whole.within(change(planned, whole))
        make(self, order, ordered, planned, *place)  # type: ignore[arg-type]

    patch.setattr(Take, "__init__", made)


def merge(patch: Patch, spoil: Callable[[Parts], Parts]) -> None:
    """The task that combines what ranges left reads other parts than its order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if len(left.parts) > 1 else left

    def merged(read: OrderedParts) -> OrderedParts:
        return replace(read, partitions=tuple(map(spoiled, read.partitions)))

    read_otherwise(patch, merged)


def write_part(patch: Patch, change: Callable[[pa.Table], pa.Table]) -> None:
    """The writer of what ranges leave gets other rows than the steps made."""
    write = writers.Writers.left

    def wrong(self: writers.Writers, leaving: Leaving, rows: pa.RecordBatchReader, temp: Path) -> object:
        if leaving.role is Role.EXCHANGE and of_range(self.order):
            rows = changed(rows, change)
        return write(self, leaving, rows, temp)

    patch.setattr(writers.Writers, "left", wrong)


# ---- each offset of the key in exactly one part


@caught_by(COVERED)
def test_a_record_that_a_range_loses_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    def lose(_: Batch, seen: Taken) -> None:
        seen.dispositions[:1] = LEFT

    spoil_takes_of(monkeypatch, lambda order, _: of_range(order), lose)
    return ran(split)


@caught_by(COVERED)
def test_a_record_that_a_range_takes_of_the_next_one_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    take_as(split, monkeypatch, lambda part, _: Span(part.start, part.end + 1))
    return ran(split)


@caught_by(COVERED)
def test_a_record_that_neither_of_two_ranges_takes_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    take_as(split, monkeypatch, lambda part, _: Span(part.start, part.end - 1))
    return ran(split)


@pytest.mark.long
@caught_by(COVERED)
def test_a_range_that_is_taken_in_place_of_another_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    take_as(split, monkeypatch, lambda part, _: Span(part.end, part.end + part.records))
    return ran(split)


@pytest.mark.long
@caught_by(COVERED)
def test_a_range_that_is_taken_beside_its_own_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    take_as(split, monkeypatch, lambda _, whole: Span(whole.start, whole.end))
    return ran(split)


@caught_by(COVERED)
def test_a_range_of_which_nothing_is_read_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    read_nothing(monkeypatch, lambda order, _: of_range(order))
    return ran(split)


# ---- each part combined exactly once, where its keys belong


@caught_by(COVERED)
def test_a_part_that_is_not_combined_is_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    merge(monkeypatch, lambda parts: parts[1:])
    return ran(split)


@caught_by(COVERED)
def test_a_part_that_is_combined_twice_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    merge(monkeypatch, lambda parts: (*parts, parts[0]))
    return ran(split)


@pytest.mark.long
@caught_by(COVERED)
def test_a_part_that_is_combined_in_place_of_another_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    def others(parts: Parts) -> Parts:
        return (replace(parts[1], first=parts[0].first, task=parts[0].task), *parts[1:])

    merge(monkeypatch, others)
    return ran(split)


@caught_by(COVERED)
def test_rows_that_the_owner_does_not_take_are_missed(split: BatchRef, monkeypatch: Patch) -> Refusal:
    def missed(batch: Batch, seen: Taken) -> None:
        if batch.where.startswith("parts.hot.exchange") or "@position" in batch.records.schema.names:
            seen.dispositions[:1] = LEFT

    spoil_kernel(monkeypatch, missed)
    return ran(split)


@pytest.mark.long
def test_rows_that_are_left_for_another_owner_are_seen(split: BatchRef, monkeypatch: Patch) -> None:
    def wrong(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
        right = destinations(leaving, task, rows)
        return (right + 1) % leaving.placement.partitions if leaving.name == "parts.hot.exchange" else right

    monkeypatch.setattr(writers, "destinations", wrong)
    assert IN_PLACE in ran(split).failed


@caught_by(PRODUCED)
def test_a_row_that_is_lost_when_a_part_is_written_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    write_part(monkeypatch, lambda rows: rows.slice(1))
    return ran(split)


@pytest.mark.long
@caught_by(PRODUCED)
def test_a_row_that_is_doubled_when_a_part_is_written_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    write_part(monkeypatch, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return ran(split)


@caught_by(PRODUCED)
def test_a_part_that_is_not_written_is_seen(split: BatchRef, monkeypatch: Patch) -> Refusal:
    write_part(monkeypatch, lambda rows: rows.slice(0, 0))
    return ran(split)


def test_the_same_batch_is_published_once_nothing_is_wrong(skew: Skewed, split: BatchRef) -> None:
    run_and_publish(split)
    assert skew.rows() == skew.direct("SELECT k, count(*), sum(v) FROM views WHERE v % 10 < 9 GROUP BY k")
