"""Outputs for later stages: what tasks write for others, what is there then, and how unifiers combine it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model import mark_columns
from partitioning.model.graph import StateSpec, Step, state_of
from partitioning.model.placement import Placement
from partitioning.model.plan import Exchange, Plan, Stage, TaskRef
from partitioning.model.reasons import HotRanges, Unifying
from partitioning.model.receipt import Artefact, Role, TaskReceipt
from partitioning.model.stage_inputs import ExchangeInput, ResultInput
from partitioning.model.streams import Column
from partitioning.values import Value


def unifier_levels(parts: int, fan_in: int | None) -> tuple[int, ...]:
    """How many unifiers each level has, so that the reader of `parts` parts combines at most `fan_in`.

    The task that reads a partition combines the parts of all M writers. Each of N tasks does so for its own partitions
    (Apex: MxN partitioning), or one task for all (Apex: single final unifier). Levels of unifiers come before it only
    if the parts exceed the fan-in.

    >>> unifier_levels(17, 4), unifier_levels(4, 4), unifier_levels(17, None)
    ((5, 2), (), ())

    Raises Refused for no parts, or for a fan-in below 2.
    """
    findings = []
    if parts < 1:
        what = f"{parts} parts cannot be combined"
        findings.append(Finding.of(Kind.DECLARATION, what, "unifiers", "give 1 or more", parts=parts))
    if fan_in is not None and fan_in < 2:
        what = f"a fan-in of {fan_in} combines nothing"
        findings.append(Finding.of(Kind.DECLARATION, what, "unifiers", "use 2 or more", fan_in=fan_in))
    refuse(findings)
    widths: list[int] = []
    while fan_in is not None and parts > fan_in:
        parts = -(-parts // fan_in)
        widths.append(parts)
    return tuple(widths)


def unifier_groups(parts: int, width: int) -> tuple[range, ...]:
    """The neighbouring parts of each of `width` unifiers of a level, as evenly as possible.

    Sizes differ by one at most. A unifier of a single part passes it on.

    >>> unifier_groups(9, 2)
    (range(0, 5), range(5, 9))
    """
    least, more = divmod(parts, width)
    starts = [number * least + min(number, more) for number in range(width + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(starts))


def unifier_of(part: int, parts: int, width: int) -> int:
    """The group of a part, without making all `groups`.

    >>> [unifier_of(part, 9, 2) for part in range(9)]
    [0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    least, more = divmod(parts, width)
    in_larger = more * (least + 1)
    return part // (least + 1) if part < in_larger else more + (part - in_larger) // least


# A task numbers its output rows from its own number times this on, so that no two rows have the same position.
POSITIONS = 1 << 40

# Columns of state: the batch that first wrote the row, and whether the row says that nothing is kept of its key any
# more.
BATCH = Column("@batch", "BIGINT")
GONE = Column("@gone", "BOOLEAN")
# The time of a row in microseconds, for state that is kept for a time.
DAY_END = "@day_end"
TIME = Column(mark_columns.TIME, "BIGINT")


class Leaving(Value, frozen=True):
    """What a task writes for others of the stream or step `step`: an exchange, a result, or state.

    The rows, with these columns, go to the partitions that `placement` gives their keys. Rows without a key, or with an
    unknown hash, go to the partition of the task's number. If unifiers split a partition between them, the rows go to
    the share of `unifier`.
    """

    role: Role
    name: str
    step: str
    placement: Placement
    columns: tuple[Column, ...]
    unifier: int = 0

    @property
    def numbers(self) -> range:
        """The numbers under which the rows of partitions 0, 1 … are written."""
        count = self.placement.partitions
        return range(self.unifier * count, (self.unifier + 1) * count)


class LeftPart(Value, frozen=True, omit_defaults=True, gc=False):
    """The rows of a partition that one `task` wrote: `records` of them, in the bytes [start, end) of a file.

    Their offsets in the partition begin with `first`. In state, they have the columns of this `version` of the input.
    """

    task: int
    path: str
    size: int
    etag: str
    first: int
    start: int
    end: int
    records: int
    version: int = 0


class LeftPartition(Value, frozen=True, gc=False):
    """The rows of a partition that all tasks wrote, in the order of the tasks: offsets [0, end)."""

    partition: int
    parts: tuple[LeftPart, ...] = ()

    @property
    def start(self) -> int:
        return 0

    @property
    def end(self) -> int:
        """How many rows there are."""
        return self.parts[-1].first + self.parts[-1].records if self.parts else 0


# The partitions with rows, by number, for each exchange and result by the name of its input.
Left = Mapping[str, Mapping[int, LeftPartition]]


def leavings(plan: Plan, task: TaskRef) -> tuple[Leaving, ...]:
    """What a task writes for later tasks: the exchanges of its stage, then its results and its state."""
    stage = plan.stage(task.stage)
    return tuple(chain(_exchanges(plan, stage, task.task), _results(plan, stage), _states(stage)))


def state_columns(keeps: StateSpec) -> tuple[Column, ...]:
    """The columns of the rows of state."""
    return *keeps.columns, BATCH, GONE


def given_to(step: Step) -> tuple[str, ...]:
    """The names of the rows that a task writes for a step on Spark's DataFrames, one for each of its inputs."""
    return tuple(f"{step.name}.given-{number}" for number in range(len(step.inputs))) if step.on_dataframes else ()


def writers(plan: Plan, read: ExchangeInput | ResultInput) -> Stage:
    """The stage whose tasks write what an input reads."""
    if isinstance(read, ExchangeInput):
        return plan.stage(next(exchange.stage for exchange in plan.exchanges if exchange.name == read.name))
    return next(stage for stage in plan.stages if any(step.name == read.step for step in stage.steps))


def left_by(receipts: Iterable[TaskReceipt]) -> Left:
    """What tasks wrote for later tasks of their batch, by their receipts."""
    return left_in(
        (receipt.task.task, artefact, 0)
        for receipt in sorted(receipts, key=lambda receipt: receipt.task)
        for artefact in receipt.artefacts
        if artefact.role in (Role.EXCHANGE, Role.RESULT)
    )


def left_in(files: Iterable[tuple[int, Artefact, int]]) -> Left:
    """The rows of files by partition, each with the number of the task that wrote it and the version of its columns, in
    this order."""
    left: dict[str, dict[int, list[LeftPart]]] = {}
    for task, artefact, version in files:
        for part in artefact.parts:
            parts = left.setdefault(artefact.name, {}).setdefault(part.partition, [])
            first = parts[-1].first + parts[-1].records if parts else 0
            file = task, artefact.path, artefact.size, artefact.etag
            parts.append(LeftPart(*file, first, part.start, part.end, part.records, version))
    return {
        name: {number: LeftPartition(number, tuple(parts)) for number, parts in sorted(partitions.items())}
        for name, partitions in left.items()
    }


def partitions_of(left: Left, name: str, numbers: Sequence[int]) -> tuple[LeftPartition, ...]:
    """These partitions of an exchange or result, also those without rows."""
    there = left.get(name, {})
    return tuple(there.get(number) or LeftPartition(number) for number in numbers)


def writers_of(plan: Plan, tasks: Iterable[TaskRef]) -> set[str]:
    """The stages whose tasks have to have run before these."""
    stages = {plan.stage(task.stage).name: plan.stage(task.stage) for task in tasks}
    return {
        writers(plan, read).name
        for stage in stages.values()
        for read in stage.inputs
        if isinstance(read, ExchangeInput | ResultInput)
    }


def _exchanges(plan: Plan, stage: Stage, task: int) -> Iterator[Leaving]:
    for exchange in plan.exchanges:
        if exchange.stage == stage.name:
            step, columns = step_left(stage, exchange), _columns(plan, exchange.name)
            unifier = _unifier(stage, task, exchange)
            yield Leaving(Role.EXCHANGE, exchange.name, step, exchange.placement, columns, unifier)


def step_left(stage: Stage, exchange: Exchange) -> str:
    """The stream or step whose rows a stage leaves in an exchange: a stage that repeats steps leaves its own rows."""
    if isinstance(stage.why, HotRanges):
        return in_ranges(exchange.source)
    return stage.steps[0].name if stage.unifies else exchange.source


def in_ranges(step: str) -> str:
    """The name of a step where it is repeated for ranges of hot keys."""
    return f"{step}.hot"


def _unifier(stage: Stage, task: int, exchange: Exchange) -> int:
    """Which unifier of each partition reads what a task writes."""
    if stage.unifies:
        # The tasks of a level are numbered as what they read.
        task //= exchange.placement.partitions
    return unifier_of(task, parts_of(stage), exchange.readers)


def parts_of(stage: Stage) -> int:
    """How many parts of each partition the tasks of a stage write: one each, or one for each of its unifiers."""
    return stage.why.unifiers if isinstance(stage.why, Unifying) else len(stage.tasks)


def _results(plan: Plan, stage: Stage) -> Iterator[Leaving]:
    steps = {step.name for step in stage.steps}
    reads = (read for later in plan.stages for read in later.inputs if isinstance(read, ResultInput))
    for name, read in {read.name: read for read in reads if read.step in steps}.items():
        yield Leaving(Role.RESULT, name, read.step, read.placement, _columns(plan, name))


def _states(stage: Stage) -> Iterator[Leaving]:
    for step in stage.steps:
        if step.state:
            assert step.state.placement is not None
            placement, columns = step.state.placement, state_columns(step.state)
            yield Leaving(Role.STATE, state_of(step.name), step.name, placement, columns)


def _columns(plan: Plan, name: str) -> tuple[Column, ...]:
    """All columns that any stage reads of an exchange or result."""
    inputs = (read for stage in plan.stages for read in stage.inputs if read.name == name)
    return tuple(
        {
            column.name: column
            for read in inputs
            if isinstance(read, ExchangeInput | ResultInput)
            for column in read.columns
        }.values()
    )
