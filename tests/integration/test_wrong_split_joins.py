"""Hot keys that tasks share, or that have a task of their own, wrongly: what is lost, doubled or swapped is caught.

Views are read in ranges, clicks are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch, Reader
from partitioning.documents.store import Store
from partitioning.model.leaving import Leaving, LeftPart, LeftPartition
from partitioning.model.offsets import Span
from partitioning.model.order import Order, Ordered, OrderedParts, OrderedStream
from partitioning.model.reasons import OwnTasks
from partitioning.model.receipt import Role
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.values import replace
from spark_jobs.engine import kernel, writers
from spark_jobs.engine.kernel import TaskEnvironment
from spark_jobs.engine.take import LEFT, TAKEN, Take, Taken
from spark_jobs.engine.tally import destinations
from tests.hot import HOT, Met, Skewed, counted, skewed
from tests.judged import COVERED, HASH, IN_PLACE, MEET, PRODUCED
from tests.misread import read_otherwise
from tests.real_batches import spoil_kernel
from tests.running import run_and_publish
from tests.wrong_tasks import (
    Patch,
    Wrong,
    changed,
    doubled,
    first,
    goes_by,
    lost,
    of_others,
    read_nothing,
    reading,
    refused,
    says,
    spoil_takes_of,
    ways,
    writes,
)

# The tasks that share the hot key, and one that has other keys only.
FIRST, LAST = 4, 5
FAR = 0
ELSEWHERE = {COVERED, IN_PLACE, MEET}
TAKE, LOSE, TAKE_ANOTHER = first(LEFT, TAKEN, hot=True), first(TAKEN, LEFT, hot=True), first(LEFT, TAKEN, hot=False)


def read_as(patch: Patch, task: int, change: Callable[[PlannedPartition], PlannedPartition]) -> None:
    """A task reads partitions of views otherwise than its order says."""
    reader, make = kernel.reader, Take.__init__

    def changed(ordered: Ordered) -> Ordered:
        assert isinstance(ordered, OrderedStream)
        return replace(ordered, partitions=tuple(map(change, ordered.partitions)))

    def wrong(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        is_it = (order.task.task, ordered.name) == (task, "views")
        return reader(order, changed(ordered) if is_it else ordered, place)

    def made(self: Take, order: Order, ordered: Ordered, planned: PlannedPartition, *more: object) -> None:
        is_it = (order.task.task, ordered.name) == (task, "views")
        make(self, order, ordered, change(planned) if is_it else planned, *more)  # type: ignore[arg-type]

    patch.setattr(kernel, "reader", wrong)
    patch.setattr(Take, "__init__", made)


def moved(start: int, end: int = 0) -> Callable[[PlannedPartition], PlannedPartition]:
    return lambda part: replace(part, start=part.start + start, end=part.end + end)


@ways
def test_tasks_that_share_a_hot_key_wrongly_are_refused_and_their_batch_is_published_once_nothing_is_wrong(
    some: str, store: Store
) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    met.land(1)
    met.run(None)
    met.land(2)
    split, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [(key.key, key.ranged, key.tasks) for key in stage.why.keys] == [(HOT, "views", 2)]
    assert stage.shares == (range(FIRST, LAST + 1),)
    others, whole = of_others(split, FIRST), plan.stream("views").partitions
    assert others != FAR
    refused(split, some, {
        # Each record of the side in ranges is in exactly one of the tasks.
        "a task loses a record of its range": ({COVERED}, says(LAST, "views", LOSE)),
        "no task reads a range": ({COVERED}, lambda p: read_nothing(p, reading(LAST, "views"))),
        # The last task reads the whole partition, and so the first one's range again.
        "two read a range": ({COVERED}, lambda p: read_as(p, LAST, lambda part: whole[part.partition])),
        "ranges overlap": ({COVERED}, lambda p: read_as(p, LAST, moved(-20))),
        "ranges leave a gap between them": ({COVERED}, lambda p: read_as(p, LAST, moved(20))),
        # As many records are read as should be.
        "ranges move on by a record": ({COVERED}, lambda p: read_as(p, FIRST, moved(1, 1))),
        "the task of the others takes one too": (ELSEWHERE, says(others, "views", TAKE)),
        "the task of the others takes one in their place": (
            {IN_PLACE, MEET}, lambda p: [says(others, "views", TAKE)(p), says(FIRST, "views", LOSE)(p)]
        ),
        # All records of the other side are in each of them.
        "the first copy lacks one": ({COVERED}, says(FIRST, "clicks", LOSE)),
        "the last copy lacks one": ({COVERED}, says(LAST, "clicks", LOSE)),
        "a copy has another key": (ELSEWHERE, says(LAST, "clicks", TAKE_ANOTHER)),
        # As many records are copied as should be.
        "a copy has another record": (ELSEWHERE, says(LAST, "clicks", LOSE, TAKE_ANOTHER)),
        "a copy is not read": ({COVERED}, lambda p: read_nothing(p, reading(LAST, "clicks"))),
        "all copies lack the same": (
            {COVERED}, lambda p: [says(task, "clicks", LOSE)(p) for task in (FIRST, LAST)]
        ),
        "the task of the others has a copy": (ELSEWHERE, says(others, "clicks", TAKE)),
        # Every other key is in one task.
        "a task that shares takes another key": (ELSEWHERE, says(LAST, "views", TAKE_ANOTHER)),
        "nobody takes another key": ({COVERED}, says(others, "views", first(TAKEN, LEFT))),
        "a task takes all keys of its range": (ELSEWHERE, goes_by(LAST, None)),
        "a task goes by another residue": (ELSEWHERE, goes_by(LAST, 8)),
        "the task of the others keeps the key": (ELSEWHERE, goes_by(others, None)),
        # Each row of them is written once.
        "a row is lost when it is written": ({PRODUCED}, writes(FIRST, lost)),
        "a row is doubled when it is written": ({PRODUCED}, writes(LAST, doubled)),
    })  # fmt: skip
    run_and_publish(split)
    assert met.rows() == met.direct()


# The task of the hot key.
OWN = 4


@ways
def test_a_task_of_a_hot_key_that_goes_wrong_is_refused_and_its_batch_is_published_once_nothing_is(
    some: str, store: Store
) -> None:
    met = Met(store)
    met.land(1)
    met.run(None)
    met.land(2)
    own, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [key.key for key in stage.why.keys] == [HOT]
    others = of_others(own, OWN)
    refused(own, some, {
        # Each record of the key is in its task.
        "it loses a record": ({COVERED}, says(OWN, "views", LOSE)),
        "it loses the other side": ({COVERED}, says(OWN, "clicks", LOSE)),
        "the task of the others takes one too": (ELSEWHERE, says(others, "views", TAKE)),
        "both take the other side": (ELSEWHERE, says(others, "clicks", TAKE)),
        "the task of the others takes one in its place": (
            {IN_PLACE, MEET}, lambda p: [says(others, "views", TAKE)(p), says(OWN, "views", LOSE)(p)]
        ),
        # No record of another key is in it.
        "it takes another key": (ELSEWHERE, says(OWN, "views", first(LEFT, TAKEN, hot=False))),
        "nobody takes another key": ({COVERED}, says(others, "views", first(TAKEN, LEFT))),
        # Each task goes by its residues and its files.
        "it takes all of its partitions": (ELSEWHERE, goes_by(OWN, None)),
        "it goes by another residue": (ELSEWHERE, goes_by(OWN, 8)),
        "the task of the others keeps the key": (ELSEWHERE, goes_by(others, None)),
        "it reads nothing": ({COVERED}, lambda p: read_nothing(p, lambda order, _: order.task.task == OWN)),
        # Each row of it is written once.
        "a row is lost when it is written": ({PRODUCED}, writes(OWN, lost)),
        "a row is doubled when it is written": ({PRODUCED}, writes(OWN, doubled)),
    })  # fmt: skip
    run_and_publish(own)
    assert met.rows() == met.direct()


Parts = tuple[LeftPart, ...]


def of_range(order: Order) -> bool:
    """Whether a task reads the first range of the hot key."""
    return (order.stage, order.task.task) == ("views.hot", 0)


def takes(ref: BatchRef, change: Callable[[PlannedPartition, PlannedPartition], Span]) -> Wrong:
    """The task of the first range takes another one: `change` gets what is planned of it and of its partition."""
    make = Take.__init__

    def made(self: Take, order: Order, ordered: Ordered, planned: PlannedPartition, *place: object) -> None:
        if of_range(order):
            whole = ref.load()[1].stream("views").partitions[planned.partition]
            planned = whole.within(change(planned, whole))
        make(self, order, ordered, planned, *place)  # type: ignore[arg-type]

    return lambda patch: patch.setattr(Take, "__init__", made)


def merges(spoil: Callable[[Parts], Parts]) -> Wrong:
    """The task that combines what ranges left reads other parts than its order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if len(left.parts) > 1 else left

    def merged(read: OrderedParts) -> OrderedParts:
        return replace(read, partitions=tuple(map(spoiled, read.partitions)))

    return lambda patch: read_otherwise(patch, merged)


def writes_hot(change: Callable[[pa.Table], pa.Table]) -> Wrong:
    """The writer of what ranges leave gets other rows than the steps made."""
    write = writers.Writers.left

    def wrong(self: writers.Writers, leaving: Leaving, rows: pa.RecordBatchReader, temp: Path) -> object:
        if leaving.role is Role.EXCHANGE and of_range(self.order):
            rows = changed(rows, change)
        return write(self, leaving, rows, temp)

    return lambda patch: patch.setattr(writers.Writers, "left", wrong)


def lose(_: Batch, seen: Taken) -> None:
    seen.dispositions[:1] = LEFT


def lose_left(batch: Batch, seen: Taken) -> None:
    """The owner does not take a row that was left for it."""
    if batch.where.startswith("parts.hot.exchange") or "@position" in batch.records.schema.names:
        lose(batch, seen)


def leave_for_another(patch: Patch) -> None:
    def wrong(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
        right = destinations(leaving, task, rows)
        return (right + 1) % leaving.placement.partitions if leaving.name == "parts.hot.exchange" else right

    patch.setattr(writers, "destinations", wrong)


def second_for_first(parts: Parts) -> Parts:
    return (replace(parts[1], first=parts[0].first, task=parts[0].task), *parts[1:])


@ways
def test_a_hot_key_that_is_split_wrongly_is_refused_and_its_batch_is_published_once_nothing_is_wrong(
    some: str, store: Store
) -> None:
    skew = Skewed(store, counted)
    skew.land(skewed(5_000, seed=1))
    skew.run()
    skew.land(skewed(5_000, seed=2))
    split, plan = skew.planned()
    assert [stage.name for stage in plan.stages] == ["views.hot", "views"]
    refused(split, some, {
        # Each offset of the key is in exactly one part.
        "a range loses a record": ({COVERED}, lambda p: spoil_takes_of(p, lambda order, _: of_range(order), lose)),
        "a range takes one of the next": ({COVERED}, takes(split, lambda part, _: Span(part.start, part.end + 1))),
        "neither of two ranges takes one": ({COVERED}, takes(split, lambda part, _: Span(part.start, part.end - 1))),
        "a range is taken in place of another": (
            {COVERED}, takes(split, lambda part, _: Span(part.end, part.end + part.records))
        ),
        "a range is taken beside its own": ({COVERED}, takes(split, lambda _, whole: Span(whole.start, whole.end))),
        "nothing of a range is read": ({COVERED}, lambda p: read_nothing(p, lambda order, _: of_range(order))),
        # Each part is combined exactly once, where its keys belong.
        "a part is not combined": ({COVERED}, merges(lambda parts: parts[1:])),
        "a part is combined twice": ({COVERED}, merges(lambda parts: (*parts, parts[0]))),
        "a part is combined in place of another": ({COVERED}, merges(second_for_first)),
        "the owner does not take a row": ({COVERED}, lambda p: spoil_kernel(p, lose_left)),
        "rows are left for another owner": ({HASH, IN_PLACE}, leave_for_another),
        "a row is lost when a part is written": ({PRODUCED}, writes_hot(lost)),
        "a row is doubled when a part is written": ({PRODUCED}, writes_hot(doubled)),
        "a part is not written": ({PRODUCED}, writes_hot(lambda rows: rows.slice(0, 0))),
    })  # fmt: skip
    run_and_publish(split)
    assert skew.rows() == skew.direct("SELECT k, count(*), sum(v) FROM views WHERE v % 10 < 9 GROUP BY k")
