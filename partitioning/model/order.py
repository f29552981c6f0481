"""Orders: the slice of a plan that one task needs to run, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, assert_never

from msgspec import UNSET, UnsetType

from partitioning.model.graph import Step
from partitioning.model.leaving import Leaving, Left, LeftPartition, leavings, partitions_of
from partitioning.model.placement import Placement
from partitioning.model.plan import (
    ExchangeInput,
    Input,
    Plan,
    PlannedPartition,
    PlannedWrite,
    ResultInput,
    Stage,
    StateInput,
    StreamInput,
    TaskRef,
)
from partitioning.model.streams import Column, NullKeys, Sparse, Stream
from partitioning.model.tasks import Task
from partitioning.values import Document, Value, replace

# The column that says where a row is among all that tasks left for a partition.
POSITION = "@position"


class _Ordered(Value, frozen=True):
    """An input of a stage as one of its tasks reads it."""

    read: Input

    @property
    def name(self) -> str:
        """How the task and its receipt name it."""
        return self.read.name

    @property
    def relation(self) -> str:
        """How SQL names its records: those of this stream or step, or of its state."""
        return self.read.name if isinstance(self.read, StateInput) else self.read.step

    @property
    def placement(self) -> Placement:
        return self.read.placement


class OrderedStream(_Ordered, frozen=True, tag="stream", tag_field="kind"):
    """A stream as one task reads it: its partitions with their ranges and files."""

    read: StreamInput
    declared: Stream
    columns: tuple[Column, ...]
    partitions: tuple[PlannedPartition, ...]

    def of_all(self, tasks: Sequence[Ordered]) -> OrderedStream:
        """The same stream with all partitions that several tasks read."""
        streams = (ordered for ordered in tasks if isinstance(ordered, OrderedStream))
        partitions = {planned.partition: planned for ordered in streams for planned in ordered.partitions}
        return replace(self, partitions=tuple(partitions[number] for number in sorted(partitions)))

    @property
    def offset(self) -> str:
        """The column that says where a record is in its partition."""
        return self.declared.offset

    @property
    def null_keys(self) -> NullKeys:
        return self.declared.null_keys

    @property
    def sparse(self) -> bool:
        """Whether any offsets may be missing, so that only who reads them knows which there are."""
        return isinstance(self.declared.sparse, Sparse)

    @property
    def table(self) -> bool:
        """Whether only the latest record of each key counts."""
        return self.declared.table


class OrderedParts(_Ordered, frozen=True, tag="parts", tag_field="kind"):
    """What tasks left, in an exchange, as a result or as state, as one task reads it."""

    read: ExchangeInput | ResultInput | StateInput
    partitions: tuple[LeftPartition, ...]

    def of_all(self, tasks: Sequence[Ordered]) -> OrderedParts:
        """The same input with all partitions that several tasks read."""
        inputs = (ordered for ordered in tasks if isinstance(ordered, OrderedParts))
        partitions = {left.partition: left for ordered in inputs for left in ordered.partitions}
        return replace(self, partitions=tuple(partitions[number] for number in sorted(partitions)))

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.read.columns

    @property
    def offset(self) -> str:
        """The column that says where a record is in its partition."""
        return POSITION

    @property
    def null_keys(self) -> NullKeys:
        """Whatever was done about a stream's own, those that steps made are records like others."""
        return NullKeys.OWN_TASK

    @property
    def sparse(self) -> bool:
        """Whether any offsets may be missing, so that only who reads them knows which there are."""
        return False

    @property
    def table(self) -> bool:
        """Whether only the latest record of each key counts."""
        return False


Ordered = OrderedStream | OrderedParts


class Order(Document, frozen=True):
    """What one task has to do: what to read and to take of it, the steps to run, and what to write and to leave.

    `task` is as the plan has it: `tasks.takes` says which records are its own. `plan` is the digest of the plan,
    `store` the root below which results are written. Its size does not depend on how many tasks there are, but for
    those that left what it reads.
    """

    FORMAT: ClassVar[str] = "coset.order/3"

    plan: str
    pipeline: str
    batch: int
    attempt: int
    store: str
    stage: str
    cosets: int
    task: Task
    inputs: tuple[Ordered, ...]
    steps: tuple[Step, ...]
    writes: tuple[PlannedWrite, ...]
    leaves: tuple[Leaving, ...]
    key_sample: int
    day_end: int | UnsetType = UNSET

    @property
    def ref(self) -> TaskRef:
        """The task, by its stage and number."""
        return TaskRef(self.stage, self.task.task)

    def __str__(self) -> str:
        return f"task {self.ref} of batch {self.batch}"


def order_of(plan: Plan, digest: str, ref: TaskRef, attempt: int, store: str, left: Left) -> Order:
    """The order of a task in an attempt; `digest` is the plan's, `store` the root of the store.

    `left` is what the tasks of earlier waves left in that attempt, and of state those of earlier batches.
    """
    stage = plan.stage(ref.stage)
    task = stage.tasks[ref.task]
    return Order(
        digest,
        plan.pipeline,
        plan.batch,
        attempt,
        store,
        stage.name,
        stage.cosets,
        task,
        tuple(_ordered(plan, stage, task, left)),
        stage.steps,
        stage.writes,
        leavings(plan, ref),
        plan.key_sample,
        plan.day_end,
    )


def _ordered(plan: Plan, stage: Stage, task: Task, left: Left) -> Iterator[Ordered]:
    for read in stage.inputs:
        numbers = task.reads.get(read.name, ())
        match read:
            case StreamInput():
                stream = plan.stream(read.name)
                yield OrderedStream(read, stream.declared, stream.columns, stream.read_by(task))
            case ExchangeInput() | ResultInput() | StateInput():
                yield OrderedParts(read, partitions_of(left, read.name, numbers))
            case _:
                assert_never(read)
