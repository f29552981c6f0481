"""Split joins: hot keys that several tasks share, each with a range of one stream and a copy of the other sides.

A row of a join is made of one record of each side. If each task has all records of the other sides, it makes the rows
of its range, and no other task makes them too. That is so for inner joins, and for left joins with the stream in ranges
on their left. Of a full join each task would give what finds no partner in its range alone. Steps that need all
records of a key together may only be where each task has all of them: on the sides that are copied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import UNSET

from partitioning.errors import Finding
from partitioning.model.graph import Join, Op, Step
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import OwnTask, OwnTasks
from partitioning.model.stage_inputs import ResultInput
from partitioning.model.streams import Stream
from partitioning.planning.stages.hot_ranges import HEAVIER, MOST_TASKS, PART
from partitioning.planning.stages.record_ranges import make_up
from partitioning.planning.task_coverage import unsound
from partitioning.values import Value, replace

# Steps that make each row of one record, or of some that need not be together.
_ALONE = {Op.FILTER, Op.SELECT, Op.REKEY, Op.REPARTITION, Op.MERGE, Op.PARTIAL}
_JOINED = re.compile(r'"[^"]*" AS "[^"]*" ((?:LEFT |FULL )?JOIN) "')


class Shared(Value, frozen=True):
    """How many `tasks` share a key, by ranges of the stream `ranged`; or should, if nothing kept its records
    `together`."""

    ranged: str
    tasks: int
    together: str


def splits_joins(steps: Sequence[Step]) -> bool:
    """Whether a stage with these steps gives the hot keys of its joins to several tasks, if they are to be split: what
    is combined is split in another way, and what is neither combined nor joined is left."""
    ops = {step.op for step in steps}
    return Op.JOIN in ops and Op.COMBINE not in ops


def kept_together(stream: str, streams: Sequence[Stream], steps: Sequence[Step], given: Collection[str]) -> str:
    """The step, stream or table that keeps the records of a key in one task, if those of a `stream` were in several.
    Empty if none does.

    A stage reads these `streams` and has these `steps`. The rows of those that are `given` leave it.
    """
    for read in streams:
        # What is set aside is kept once.
        if read.table if read.name == stream else read.sets_aside:
            return read.name
    parted = {stream}
    for step in steps:
        if step.state or step.on_dataframes:
            return step.name
        if parted.isdisjoint(step.inputs):
            continue
        alone = step.op in _ALONE and parted.issuperset(step.inputs)
        if not alone and not (step.op is Op.JOIN and _joins_one(step, parted)):
            return step.name
        parted.add(step.name)
    return next((name for name in given if name not in parted), "")


def _joins_one(step: Step, parted: Collection[str]) -> bool:
    """Whether a join makes rows of one record of its only side that is in several tasks."""
    sides = [number for number, name in enumerate(step.inputs) if name in parted]
    match join_of(step):
        case Join.INNER:
            return len(sides) == 1
        case Join.LEFT:
            return sides == [0]
        case Join.FULL | None:
            return False


def join_of(step: Step) -> Join | None:
    """What a join keeps, by its SQL; None if that is not SQL that `Flow.join` makes.

    >>> sql = 'SELECT "a"."k" AS "k", b.v FROM "a" AS "a" LEFT JOIN "b" AS "b" ON …'
    >>> print(join_of(Step("joined", Op.JOIN, ("a", "b"), sql, ("b.v",), "k")))
    left
    """
    _, _, joined = step.sql.partition(f", {step.expressions[0]} FROM ")
    found = _JOINED.match(joined)
    return next((join for join in Join if found and join.sql == found[1]), None)


def shares(ranged: int, copied: int, most: Fraction, *, before: bool = False) -> int:
    """How many tasks share a key that has so many records in the stream in ranges, and `copied` ones beside: as few as
    have no more than the `most` of a task without hot keys. A key that was shared `before` stays so for longer.

    >>> shares(40_000, 500, Fraction(7_500)), shares(40_000, 5_000, Fraction(7_500)), shares(8_000, 0, Fraction(7_500))
    (6, 1, 1)
    """
    if ranged + copied < HEAVIER[before] * most or 2 * copied > most:
        return 1
    return min(MOST_TASKS, -(-ranged // (most - copied)))


def least_share(taken: int, tasks: int) -> Fraction:
    """What tasks that share a key may always have, where so many `tasks` take so many records in all."""
    return PART * Fraction(taken, tasks)


def split_join_findings(plan: Plan, stage: Stage) -> Iterator[Finding]:
    """Findings for keys that several tasks share: these must be the same but for their ranges, which must make up what
    the batch reads of the key's partition; and no step may need their records together."""
    if not isinstance(why := stage.why, OwnTasks):
        return
    for own, numbers in zip(why.keys, why.numbers, strict=True):
        if own.tasks != 1 and (wrong := _wrong_share(plan, stage, own, numbers)):
            yield unsound(f"{own.tasks} tasks share {own.key}: {wrong}", f"stage {stage.name}", key=own.key)


def _wrong_share(plan: Plan, stage: Stage, own: OwnTask, numbers: range) -> str:
    """What is wrong with the tasks of a key."""
    tasks = [task for task in stage.tasks if task.task in numbers]
    alike = [replace(task, task=0, offsets=UNSET) for task in tasks]
    if not tasks or len(tasks) != own.tasks or any(task != alike[0] for task in alike):
        return "they do not read and take the same, but for their ranges"
    if own.ranged not in {read.name for read in stage.streams} or tasks[0].ranged != own.ranged:
        return f"their ranges are not those of {own.ranged or 'a stream'}"
    partitions = tasks[0].reads.get(own.ranged, ())
    if len(partitions) != 1:
        return f"they read several partitions of {own.ranged}"
    planned = plan.stream(own.ranged).partitions[partitions[0]]
    if not make_up([task.span for task in tasks], planned):
        whole = Span(planned.start, planned.end)
        return f"their ranges, in order, do not make up {whole} of {own.ranged}-{planned.partition}"
    streams = [plan.stream(read.name).declared for read in stage.streams]
    together = kept_together(own.ranged, streams, stage.steps, leaving(plan, stage))
    return f"{together} keeps its records together" if together else ""


def leaving(plan: Plan, stage: Stage) -> Mapping[str, None]:
    """The streams and steps whose rows leave a stage."""
    written = [write.declared.step for write in stage.writes]
    moved = [exchange.source for exchange in plan.exchanges if exchange.stage == stage.name]
    steps = {step.name for step in stage.steps}
    results = [read.step for other in plan.stages for read in other.inputs if isinstance(read, ResultInput)]
    return dict.fromkeys([*written, *moved, *(name for name in results if name in steps)])
