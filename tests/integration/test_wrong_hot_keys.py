"""Hot keys that are split wrongly: records and parts that are lost, doubled, misplaced or changed are all caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.documents.store import Store
from partitioning.model.leaving import Leaving, LeftPart, LeftPartition
from partitioning.model.offsets import Span
from partitioning.model.order import Order, Ordered, OrderedParts
from partitioning.model.receipt import Role
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.values import replace
from spark_jobs.engine import writers
from spark_jobs.engine.take import LEFT, Take, Taken
from spark_jobs.engine.tally import destinations
from tests.hot import Skewed, counted, skewed
from tests.judged import COVERED, HASH, IN_PLACE, PRODUCED
from tests.misread import read_otherwise
from tests.real_batches import spoil_kernel
from tests.running import run_and_publish
from tests.wrong_tasks import Patch, Wrong, changed, doubled, lost, read_nothing, refused, spoil_takes_of, ways

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


def writes(change: Callable[[pa.Table], pa.Table]) -> Wrong:
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
        "a row is lost when a part is written": ({PRODUCED}, writes(lost)),
        "a row is doubled when a part is written": ({PRODUCED}, writes(doubled)),
        "a part is not written": ({PRODUCED}, writes(lambda rows: rows.slice(0, 0))),
    })  # fmt: skip
    run_and_publish(split)
    assert skew.rows() == skew.direct("SELECT k, count(*), sum(v) FROM views WHERE v % 10 < 9 GROUP BY k")
