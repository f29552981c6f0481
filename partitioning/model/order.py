"""Orders: the slice of a plan that one task needs to run, and which tasks of a group share one pass of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType, field

from partitioning.model.graph import Step
from partitioning.model.leaving import Leaving, Left, LeftPartition, leavings, partitions_of
from partitioning.model.offsets import Span
from partitioning.model.placement import OPAQUE, HashName, Placement
from partitioning.model.plan import Plan, PlannedWrite, Stage, TaskGroup, TaskRef
from partitioning.model.root_names import uri_of_key, usual_tables
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedPartition, ResultInput, StateInput, StreamInput
from partitioning.model.streams import Column, NullKeys, Stream
from partitioning.model.takes import Task
from partitioning.values import Document, Value, replace

# The column with a row's position among all rows written for a partition.
POSITION = "@position"
# Of a step's state the audit compares about so many keys: those of records were compared when they came.
STATE_KEYS_COMPARED = 2_000


class _Ordered(Value, frozen=True):
    """An input of a stage, as one task reads it."""

    read: Input

    @property
    def name(self) -> str:
        """Its name in the task and its receipt."""
        return self.read.name

    @property
    def relation(self) -> str:
        """Its name in SQL: the stream, the step, or the state."""
        return self.read.name if isinstance(self.read, StateInput) else self.read.step

    @property
    def placement(self) -> Placement:
        return self.read.placement

    def compared(self, key_sample: int) -> int:
        """One in how many of its keys the audit compares, if it is one in `key_sample` of the batch's: the same keys,
        or fewer of a state. Nothing else sees where keys of an unknown hash meet, so that all of those are compared.
        """
        if not isinstance(self.read, StateInput) or self.placement.hash == OPAQUE:
            return key_sample
        return key_sample * max(1, -(-self.read.records // (key_sample * STATE_KEYS_COMPARED)))


class OrderedStream(_Ordered, frozen=True, tag="stream", tag_field="kind", omit_defaults=True):
    """A stream as one task reads it: its partitions with ranges and files."""

    read: StreamInput
    declared: Stream
    columns: tuple[Column, ...]
    partitions: tuple[PlannedPartition, ...]
    ids: Mapping[str, int] = field(default_factory=dict)

    def of_all(self, tasks: Sequence[Ordered]) -> OrderedStream:
        """The same stream with the partitions of several tasks."""
        streams = (ordered for ordered in tasks if isinstance(ordered, OrderedStream))
        partitions = {planned.partition: planned for ordered in streams for planned in ordered.partitions}
        return replace(self, partitions=tuple(partitions[number] for number in sorted(partitions)))

    @property
    def hash(self) -> HashName:
        """The hash by which its records lie; any of several."""
        return self.declared.hash

    @property
    def offset(self) -> str:
        """The column with a record's position in its partition."""
        return self.declared.offset

    @property
    def null_keys(self) -> NullKeys:
        return self.declared.null_keys

    @property
    def sparse(self) -> bool:
        """Whether any number of offsets may be missing, so that only its readers know which ones exist."""
        return self.declared.may_lack_offsets

    @property
    def table(self) -> bool:
        """Whether only the latest record of each key counts."""
        return self.declared.table


class OrderedParts(_Ordered, frozen=True, tag="parts", tag_field="kind"):
    """An exchange, result or state, as one task reads it."""

    read: ExchangeInput | ResultInput | StateInput
    partitions: tuple[LeftPartition, ...]

    def of_all(self, tasks: Sequence[Ordered]) -> OrderedParts:
        """The same input with the partitions of several tasks."""
        inputs = (ordered for ordered in tasks if isinstance(ordered, OrderedParts))
        partitions = {left.partition: left for ordered in inputs for left in ordered.partitions}
        return replace(self, partitions=tuple(partitions[number] for number in sorted(partitions)))

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.read.columns

    @property
    def offset(self) -> str:
        """The column with a record's position in its partition."""
        return POSITION

    @property
    def hash(self) -> HashName:
        """The hash by which its records lie; any of several."""
        return self.placement.hash

    @property
    def null_keys(self) -> NullKeys:
        """`null_keys` applies to records read from a stream. Null keys that a step makes are ordinary records."""
        return NullKeys.OWN_TASK

    @property
    def sparse(self) -> bool:
        """Whether any number of offsets may be missing, so that only its readers know which ones exist."""
        return False

    @property
    def table(self) -> bool:
        """Whether only the latest record of each key counts."""
        return False


Ordered = OrderedStream | OrderedParts


class FailedRecord(Value, frozen=True, order=True):
    """A record of a stream that was set aside in an earlier attempt, why, and the step that failed on it, if any."""

    stream: str
    partition: int
    offset: int
    step: str
    why: str


class Order(Document, frozen=True):
    """What one task does: what it reads and takes, the steps it runs, and what it writes.

    Values of `private` columns go into no receipt and no error. Records that `failed` are set aside.

    `task` is the plan's; `tasks.takes` decides which records are its own. `plan` is the plan's digest, `store` the root
    below which it writes, except for `tables` that lie elsewhere. The size of an order does not grow with the number of
    tasks, except by the files of the tasks that wrote its input.
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
    private: tuple[str, ...] | UnsetType = UNSET
    failed: tuple[FailedRecord, ...] | UnsetType = UNSET
    tables: str | UnsetType = UNSET

    def uri(self, path: str) -> str:
        """The address of a file that the task writes."""
        return uri_of_key(self.store, self.tables or usual_tables(self.store), path)

    @property
    def ref(self) -> TaskRef:
        """The stage and number of the task."""
        return TaskRef(self.stage, self.task.task)

    @property
    def keys(self) -> Mapping[str, str]:
        """The key columns of inputs and steps, by their names in SQL; empty of those without."""
        read = {name: each.placement.key for each in self.inputs for name in (each.name, each.relation)}
        return read | {step.name: step.key for step in self.steps}

    @property
    def records(self) -> int:
        """How many records the partitions that it reads hold."""
        return sum(planned.end - planned.start for read in self.inputs for planned in read.partitions)

    def __str__(self) -> str:
        return f"task {self.ref} of batch {self.batch}"


def order_of(
    plan: Plan,
    digest: str,
    ref: TaskRef,
    attempt: int,
    store: str,
    left: Left,
    failed: Sequence[FailedRecord] = (),
    tables: str = "",
) -> Order:
    """The order of a task in an attempt. `digest` is the plan's, `store` the store's root.

    `tables` is the address of the store's tables, if it is not the usual one. `left` is what tasks of earlier waves
    wrote in that attempt and, for state, what earlier batches wrote. Steps `failed` on these records in earlier
    attempts.
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
        UNSET if plan.day_end is None else plan.day_end,
        tuple(sorted(plan.private)) or UNSET,
        tuple(each for each in failed if each.stream in {read.name for read in stage.streams}) or UNSET,
        UNSET if tables in ("", usual_tables(store)) else tables,
    )


def _ordered(plan: Plan, stage: Stage, task: Task, left: Left) -> Iterator[Ordered]:
    for read in stage.inputs:
        numbers = task.reads.get(read.name, ())
        match read:
            case StreamInput():
                stream = plan.stream(read.name)
                yield OrderedStream(read, stream.declared, stream.columns, stream.read_by(task), stream.ids)
            case ExchangeInput() | ResultInput() | StateInput():
                yield OrderedParts(read, partitions_of(left, read.name, numbers))


# A stage, its input, a partition, and the offsets if a task does not read all, of this or of another input.
_Read = tuple[str, str, int, Span | None, str | UnsetType]


def read_together(plan: Plan, group: TaskGroup) -> tuple[tuple[TaskRef, ...], ...]:
    """The tasks of a group, partitioned into those that share reads, directly or through others.

    All are of one stage. Both levels keep the order of the group.
    """
    found = companies([(ref.stage, plan.task(ref)) for ref in group.tasks])
    return tuple(tuple(group.tasks[number] for number in numbers) for numbers in found)


def companies(tasks: Sequence[tuple[str, Task]]) -> Sequence[Sequence[int]]:
    """The numbers of these tasks, each with its stage, partitioned into those that share reads. Both levels ascend.

    >>> companies([("a", Task(0, {"views": (0,)})), ("a", Task(1, {"views": (1,)})), ("a", Task(2, {"views": (0,)}))])
    [[0, 2], [1]]
    """
    first_of: dict[_Read, int] = {}
    joined = list(range(len(tasks)))

    def root(number: int) -> int:
        while joined[number] != number:
            joined[number] = joined[joined[number]]
            number = joined[number]
        return number

    for number, (stage, task) in enumerate(tasks):
        for read in _reads(stage, task):
            other = first_of.setdefault(read, number)
            first, second = sorted((root(number), root(other)))
            joined[second] = first
    members: dict[int, list[int]] = {}
    for number in range(len(tasks)):
        members.setdefault(root(number), []).append(number)
    return list(members.values())


def _reads(stage: str, task: Task) -> Iterator[_Read]:
    for name, numbers in task.reads.items():
        for number in numbers:
            # Ranges of one partition have no record in common, so their tasks have no pass in common.
            yield stage, name, number, task.span, task.ranged
