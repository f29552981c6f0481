"""Figures: what one attempt read, left and wrote, in the numbers that reports plot and metrics export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from partitioning.model.artefact import Role
from partitioning.model.occasion import Effort
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt, TaskReceipt
from partitioning.model.statistics import Statistics, statistics_of
from partitioning.values import Value


class Figures(Value, frozen=True):
    """The figures of an attempt.

    `read_bytes` are the plan's. `without_key` counts the records of streams that have no key, `missing` the planned
    offsets without a record. `rows` in `row_bytes` were written to result tables, `state` rows were left for later
    batches. `skew` is the most records that a task took, as a multiple of its stage's mean; `heaviest` is the share of
    all records of streams that have the most frequent key, 0 if no key has a twentieth of a task's records; both are
    None if nothing was read. `shape` names the scheme and the number of tasks of each stage.
    """

    tasks: int
    read_bytes: int
    without_key: int
    missing: int
    rows: int
    row_bytes: int
    state: int
    skew: float | None
    heaviest: float | None
    shape: str


def figures_of(plan: Plan, receipts: Collection[Receipt]) -> Figures:
    """The figures of an attempt, from its plan and the receipts of all task groups."""
    tasks = [task for receipt in receipts for task in receipt.tasks]
    known = statistics_of(plan, receipts)
    read = sum(known.records.get(stream.name, 0) for stream in plan.streams)
    partitions = [partition for stream in plan.streams for partition in stream.partitions]
    tables = [file for task in tasks for file in task.left(Role.TABLE)]
    return Figures(
        tasks=len(tasks),
        read_bytes=sum(partition.bytes for partition in partitions),
        without_key=_without_key(plan, tasks),
        missing=sum(partition.missing for partition in partitions),
        rows=sum(file.records for file in tables),
        row_bytes=sum(file.size for file in tables),
        state=sum(file.records for task in tasks for file in task.left(Role.STATE)),
        skew=_skew(known),
        heaviest=max((key.total for key in known.keys), default=0) / read if read else None,
        shape="; ".join(f"{stage.name}: {stage.scheme}, {len(stage.tasks)}" for stage in plan.stages),
    )


def effort_of(plan: Plan, receipts: Collection[Receipt]) -> Effort | None:
    """What the task groups took; None if one has no receipt, or one of an earlier version."""
    ran = [receipt.ran for receipt in receipts if receipt.ran is not None]
    if not ran or len(ran) < len(plan.groups):
        return None
    cpu = [task.cpu_milliseconds for receipt in receipts for task in receipt.tasks]
    known = [each for each in cpu if each is not None]
    return Effort(
        min(each.began for each in ran),
        max(each.ended for each in ran),
        sum(known) if len(known) == len(cpu) else None,
    )


def _without_key(plan: Plan, tasks: Collection[TaskReceipt]) -> int:
    """A stream that several stages read counts once."""
    streams = {stream.name for stream in plan.streams}
    by_stage = Counter[tuple[str, str]]()
    for task in tasks:
        for seen in task.partitions:
            by_stage[seen.input, task.task.stage] += seen.nulls + seen.dropped
    most = dict[str, int]()
    for (name, _), records in by_stage.items():
        most[name] = max(records, most.get(name, 0))
    return sum(records for name, records in most.items() if name in streams)


def _skew(known: Statistics) -> float | None:
    by_stage = dict[str, list[int]]()
    for task, figures in known.tasks.items():
        by_stage.setdefault(task.stage, []).append(figures.own)
    return max((max(own) * len(own) / sum(own) for own in by_stage.values() if sum(own)), default=None)
