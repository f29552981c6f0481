"""Orders: the slice of a plan that one task needs to run, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from partitioning.errors import Finding, Refused
from partitioning.model.graph import Step
from partitioning.model.plan import (
    ExchangeInput,
    Plan,
    PlannedPartition,
    PlannedWrite,
    ResultInput,
    Stage,
    StateInput,
    StreamInput,
    TaskRef,
)
from partitioning.model.streams import Column, Stream
from partitioning.model.tasks import Task
from partitioning.values import Document, Value


class OrderedStream(Value, frozen=True, tag="stream", tag_field="kind"):
    """A stream as one task reads it: its partitions with their ranges and files."""

    read: StreamInput
    declared: Stream
    columns: tuple[Column, ...]
    partitions: tuple[PlannedPartition, ...]


class Order(Document, frozen=True):
    """What one task has to do: what to read and to take of it, the steps to run, and what to write.

    `task` is as the plan has it: `tasks.takes` says which records are its own. `plan` is the digest of the plan,
    `store` the root below which results are written. Its size does not depend on how many tasks there are.
    """

    FORMAT: ClassVar[str] = "coset.order/1"

    plan: str
    pipeline: str
    batch: int
    attempt: int
    store: str
    stage: str
    cosets: int
    task: Task
    inputs: tuple[OrderedStream, ...]
    steps: tuple[Step, ...]
    writes: tuple[PlannedWrite, ...]
    key_sample: int

    @property
    def ref(self) -> TaskRef:
        """The task, by its stage and number."""
        return TaskRef(self.stage, self.task.task)

    def __str__(self) -> str:
        return f"task {self.ref} of batch {self.batch}"


def order_of(plan: Plan, digest: str, ref: TaskRef, attempt: int, store: str) -> Order:
    """The order of a task in an attempt; `digest` is the plan's, `store` the root of the store.

    Raises Refused for inputs that this version does not read.
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
        tuple(_ordered(plan, stage, task)),
        stage.steps,
        stage.writes,
        plan.key_sample,
    )


def _ordered(plan: Plan, stage: Stage, task: Task) -> Iterator[OrderedStream]:
    for read in stage.inputs:
        match read:
            case StreamInput():
                stream = plan.stream(read.name)
                partitions = tuple(stream.partitions[number] for number in task.reads.get(read.name, ()))
                yield OrderedStream(read, stream.declared, stream.columns, partitions)
            case ExchangeInput() | ResultInput() | StateInput():
                what = f"{read.name} is read by no version yet"
                raise Refused(Finding(what, f"stage {stage.name}", f"run `coset explain {plan.pipeline}`"))
