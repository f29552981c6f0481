"""Figures: what one attempt read, left and wrote, and what is usual. Reports plot them, metrics export them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from partitioning.model.journal import Effort
from partitioning.model.plan import Plan
from partitioning.model.receipt import PartitionReceipt, Receipt, Role, TaskReceipt
from partitioning.model.statistics import Statistics, counted_once, statistics_of
from partitioning.values import Value

# This many earlier values, and no fewer than FEWEST, tell what is usual.
BEFORE, FEWEST = 30, 5


def usual_from(before: Sequence[float | None]) -> tuple[float, float] | None:
    """What is usual after these values: the middle half of the last thirty, widened on both sides by one and a half
    times its width, as Tukey's fences are, and at least by a tenth of the median; below 0 only if a value was. None
    after fewer than five.

    >>> usual_from([10, 10, 12, 11, None, 9, 10]), usual_from([10] * 5), usual_from([1, 2, 3, 4])
    ((8.875, 11.875), (9.0, 11.0), None)
    """
    known = [value for value in before[-BEFORE:] if value is not None]
    if len(known) < FEWEST:
        return None
    low, median, high = statistics.quantiles(known, n=4, method="inclusive")
    around = max(1.5 * (high - low), abs(median) / 10)
    least = low - around
    return least if min(known) < 0 else max(0.0, least), high + around


class TableFigures(Value, frozen=True):
    """What an attempt wrote to a result table."""

    rows: int
    row_bytes: int


class Figures(Value, frozen=True):
    """The figures of an attempt.

    `read_bytes` are the plan's. `without_key` counts the records of streams that have no key, `set_aside` those that
    cannot be used and were set aside, `missing` the planned offsets without a record, `expired` the keys that expired
    (None if no step lets them). `rows` in `row_bytes` were written to result tables, `state` rows were left for later
    batches. `skew` is the most records that a task took, as a multiple of its stage's mean; `group_skew` the most that
    a group read, of its wave's; `heaviest` is the share of all records of streams that have the most frequent key, 0 if
    no key has a twentieth of a task's records; all three are None if nothing was read. `misjudged` is the share of the
    records by which the planned numbers of groups and those that were read differ. `tables` has what was written to
    each result table. `shape` names the scheme and the number of tasks of each stage.
    """

    tasks: int
    read_bytes: int
    without_key: int
    missing: int
    rows: int
    row_bytes: int
    state: int
    skew: float | None
    group_skew: float | None
    heaviest: float | None
    misjudged: float | None
    tables: Mapping[str, TableFigures]
    shape: str
    set_aside: int = 0
    expired: int | None = None


def figures_of(plan: Plan, receipts: Collection[Receipt]) -> Figures:
    """The figures of an attempt, from its plan and the receipts of all task groups."""
    tasks = [task for receipt in receipts for task in receipt.tasks]
    once, known = counted_once(plan, tasks).tasks, statistics_of(plan, receipts)
    read = sum(known.records.get(stream.name, 0) for stream in plan.streams)
    partitions = [partition for stream in plan.streams for partition in stream.partitions]
    written = [file for task in tasks for file in task.left(Role.TABLE)]
    tables = {}
    for write in plan.writes():
        files = [file for file in written if file.name == write.declared.table]
        size = sum(file.size for file in files)
        tables[write.declared.table] = TableFigures(sum(file.records for file in files), size)
    return Figures(
        tasks=len(tasks),
        read_bytes=sum(partition.bytes for partition in partitions),
        without_key=_most_of_stages(plan, once, lambda seen: seen.nulls + seen.dropped),
        missing=sum(partition.missing for partition in partitions),
        rows=sum(table.rows for table in tables.values()),
        row_bytes=sum(table.row_bytes for table in tables.values()),
        state=sum(file.records for task in tasks for file in task.left(Role.STATE)),
        skew=_skew(known),
        group_skew=_group_skew(plan, by_group := read_by_group(receipts)),
        heaviest=max((key.total for key in known.keys), default=0) / read if read else None,
        misjudged=_misjudged(plan, by_group),
        tables=tables,
        shape="; ".join(f"{stage.name}: {stage.scheme}, {len(stage.tasks)}" for stage in plan.stages),
        set_aside=_most_of_stages(plan, once, lambda seen: seen.set_aside),
        expired=_expired(plan, tasks),
    )


def read_by_group(receipts: Collection[Receipt]) -> dict[int, int]:
    """How many records each task group read."""
    return {receipt.group: sum(seen.read for task in receipt.tasks for seen in task.partitions) for receipt in receipts}


def effort_of(plan: Plan, receipts: Collection[Receipt]) -> Effort | None:
    """What the task groups took; None if one has no receipt, or one of an earlier version."""
    ran = [receipt.ran for receipt in receipts if receipt.ran is not None]
    if not ran or len(ran) < len(plan.groups):
        return None
    cpu = [task.cpu_milliseconds for receipt in receipts for task in receipt.tasks]
    known = [each for each in cpu if each is not None]
    return Effort(
        min(each.began for each in ran), max(each.ended for each in ran), sum(known) if len(known) == len(cpu) else None
    )


def _expired(plan: Plan, tasks: Collection[TaskReceipt]) -> int | None:
    lives = {step.name for step in plan.steps if step.state and step.state.of_lives}
    over = [closed.over.rows for task in tasks for closed in task.closed if closed.step in lives]
    return sum(over) if lives else None


def _most_of_stages(plan: Plan, tasks: Collection[TaskReceipt], count: Callable[[PartitionReceipt], int]) -> int:
    """So many records of streams. A stream that several stages read counts once."""
    streams = {stream.name for stream in plan.streams}
    by_stage = Counter[tuple[str, str]]()
    for task in tasks:
        for seen in task.partitions:
            by_stage[seen.input, task.task.stage] += count(seen)
    most = dict[str, int]()
    for (name, _), records in by_stage.items():
        most[name] = max(records, most.get(name, 0))
    return sum(records for name, records in most.items() if name in streams)


def _skew(known: Statistics) -> float | None:
    by_stage = dict[str, list[int]]()
    for task, figures in known.tasks.items():
        by_stage.setdefault(task.stage, []).append(figures.own)
    return max((max(own) * len(own) / sum(own) for own in by_stage.values() if sum(own)), default=None)


def _group_skew(plan: Plan, read: Mapping[int, int]) -> float | None:
    waves = [[read.get(number, 0) for number in groups] for groups in plan.waves]
    return max((max(wave) * len(wave) / sum(wave) for wave in waves if sum(wave)), default=None)


def _misjudged(plan: Plan, read: Mapping[int, int]) -> float | None:
    both = [(group.records, read[group.group]) for group in plan.groups if group.group in read]
    most = sum(max(planned, seen) for planned, seen in both)
    return sum(abs(planned - seen) for planned, seen in both) / most if most else None
