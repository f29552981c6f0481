"""Statistics: what the last batches read, made and took, by their receipts. Planning may use them, but needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from partitioning.model.plan import STREAM, Plan, TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What a task took: records and bytes read, and seconds of work, None where they were not measured.

    `taken` of the records were its own, the others it left to other tasks; None if it took all.
    """

    records: int
    bytes: int
    seconds: float | None = None
    taken: int | None = None


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """A key that many of the records that a task took have: at least so many `records` of each stream."""

    task: TaskRef
    key: str
    records: Mapping[str, int]

    @property
    def total(self) -> int:
        """Its records in all streams."""
        return sum(self.records.values())


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of one batch: the `records` that each stream and step gave, as far as known, and each task's.

    `cosets` is L of each stage, `groups` the number of task groups of the wave that had most. `keys` are the
    heavy ones, by task.
    """

    batch: int
    records: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[TaskRef, TaskFigures] = field(default_factory=dict)
    cosets: Mapping[str, int] = field(default_factory=dict)
    groups: int | None = None
    keys: tuple[KeyFigures, ...] = ()


def statistics_of(plan: Plan, receipts: Iterable[Receipt]) -> Statistics:
    """The figures of a batch from its plan and the receipts of all its task groups.

    A stream that several tasks read is counted once. Of the steps, those that are written are known. Bytes
    are those that the plan has for the stream partitions that a task reads.
    """
    tasks = sorted((each for receipt in receipts for each in receipt.tasks), key=lambda each: each.task)
    return Statistics(
        plan.batch,
        _read(tasks) | _written(plan, tasks),
        {each.task: _figures(plan, each) for each in tasks},
        {stage.name: stage.cosets for stage in plan.stages},
        widest(plan),
        tuple(key for each in tasks for key in _keys(each)),
    )


def widest(plan: Plan) -> int:
    """How many task groups the wave with most of them has: those that may run at the same time."""
    return max(Counter(group.wave for group in plan.groups).values())


def _read(tasks: Iterable[TaskReceipt]) -> dict[str, int]:
    parts: dict[tuple[str, int], int] = {}
    for task in tasks:
        for each in task.partitions:
            where = each.stream, each.partition
            parts[where] = max(parts.get(where, 0), each.read)
    counts: Counter[str] = Counter()
    for (stream, _), records in parts.items():
        counts[stream] += records
    return dict(counts)


def _written(plan: Plan, tasks: Iterable[TaskReceipt]) -> dict[str, int]:
    steps = {write.declared.table: write.declared.step for write in plan.writes()}
    rows = Counter(dict.fromkeys(steps, 0))
    for task in tasks:
        for file in task.files:
            rows[file.table] += file.records
    return {step: rows[table] for table, step in steps.items()}


def _figures(plan: Plan, receipt: TaskReceipt) -> TaskFigures:
    stage = plan.stage(receipt.task.stage)
    reads = stage.tasks[receipt.task.task].reads
    streams = {each.name: plan.stream(each.step) for each in stage.inputs if each.kind == STREAM}
    return TaskFigures(
        sum(each.read for each in receipt.partitions),
        sum(streams[name].partitions[number].bytes for name in reads if name in streams for number in reads[name]),
        receipt.seconds,
        sum(each.taken for each in receipt.partitions),
    )


def _keys(receipt: TaskReceipt) -> list[KeyFigures]:
    found: dict[str, Counter[str]] = {}
    for each in receipt.partitions:
        for heavy in each.heavy:
            found.setdefault(heavy.key, Counter())[each.stream] += heavy.records
    return [KeyFigures(receipt.task, key, dict(streams)) for key, streams in found.items()]
