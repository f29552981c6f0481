"""Tasks of hot keys that run wrongly: what they read, take and write is not what their order says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch, Reader
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.plan import PlannedWrite
from partitioning.values import replace
from spark_jobs.engine import kernel, writers
from spark_jobs.engine.kernel import TaskEnvironment
from spark_jobs.engine.take import Take, Taken
from tests.examples import few
from tests.hot import HOT
from tests.judged import refusal
from tests.real_batches import spoil_takes
from tests.running import run_groups

Patch = pytest.MonkeyPatch
Spoil = Callable[[Batch, Taken], object]
Wrong = Callable[[Patch], object]
# By what goes wrong: which expectations, and no others, have to refuse it, and how it is made.
Cases = Mapping[str, tuple[set[str], Wrong]]
# Whether a task, by its order, runs wrongly with an input.
WrongInput = Callable[[Order, Ordered], bool]
# The first way that some expectations have to refuse is always tried.
FIRST_WAYS = "the first of each"
ways = pytest.mark.parametrize("some", few([FIRST_WAYS, "the others"]))


def refused(ref: BatchRef, some: str, cases: Cases) -> None:
    """Run a batch again and again, each time wrong in another of some ways, and have it refused."""
    others = dict[str, tuple[str, ...]]()
    first_ways = {frozenset(expected): name for name, (expected, _) in reversed([*cases.items()])}.values()
    for name, (expected, make_wrong) in cases.items():
        if (name in first_ways) != (some == FIRST_WAYS):
            continue
        with pytest.MonkeyPatch.context() as patch:
            make_wrong(patch)
            run_groups(ref)
        if set(failed := refusal(ref).failed) != expected:
            others[name] = failed
    assert not others, others


def of_others(ref: BatchRef, hot: int) -> int:
    """The task that has the other keys of the coset whose hot key the task `hot` has."""
    (stage,) = ref.load()[1].stages
    (residue,) = stage.tasks[hot].owns
    return residue % stage.by_scheme


def reading(task: int, read: str) -> WrongInput:
    """A task and one of its inputs."""
    return lambda order, ordered: (order.task.task, ordered.name) == (task, read)


def spoil_takes_of(patch: Patch, wrong: WrongInput, spoil: Spoil) -> None:
    """Let `spoil` change what a task says becomes of the records that it reads."""
    make = Take.__init__
    spoiled = set[int]()

    def made(self: Take, order: Order, ordered: Ordered, *place: object) -> None:
        make(self, order, ordered, *place)  # type: ignore[arg-type]
        if wrong(order, ordered):
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


def read_nothing(patch: Patch, wrong: WrongInput) -> None:
    """A task is given no files of a stream."""
    reader = kernel.reader

    def read(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        if wrong(order, ordered):
            assert isinstance(ordered, OrderedStream)
            ordered = replace(ordered, partitions=tuple(replace(part, files=()) for part in ordered.partitions))
        return reader(order, ordered, place)

    patch.setattr(kernel, "reader", read)


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


def write_rows(patch: Patch, task: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """The writer of the table gets other rows of a task than the steps made."""
    write = writers.Writers.table

    def wrong(self: writers.Writers, written: PlannedWrite, rows: pa.RecordBatchReader) -> object:
        if self.order.task.task == task:
            rows = changed(rows, change)
        return write(self, written, rows)

    patch.setattr(writers.Writers, "table", wrong)


def lost(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def says(task: int, read: str, *spoil: Spoil) -> Wrong:
    """A task says otherwise what becomes of the records of one of its inputs."""

    def spoiled(batch: Batch, seen: Taken) -> None:
        for each in spoil:
            each(batch, seen)

    return lambda patch: spoil_takes_of(patch, reading(task, read), spoiled)


def goes_by(task: int, moved: int | None) -> Wrong:
    """A task goes by a residue that is so far from its own, or by none."""
    return lambda patch: take_residues(
        patch, task, lambda modulus, owned: None if moved is None else ((owned[0] + moved) % modulus,)
    )


def writes(task: int, change: Callable[[pa.Table], pa.Table]) -> Wrong:
    return lambda patch: write_rows(patch, task, change)


def changed(rows: pa.RecordBatchReader, change: Callable[[pa.Table], pa.Table]) -> pa.RecordBatchReader:
    table = rows.read_all()
    return pa.RecordBatchReader.from_batches(table.schema, change(table).to_batches())
