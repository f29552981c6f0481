"""What it saves and costs to split stream partitions with hot keys, or to give each hot key tasks of its own."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import HotRanges, OwnTasks, SplitPartition
from partitioning.model.takes import Task
from partitioning.values import Value

# What documents for programs call fields that say less where their class is not named.
_SPLIT = {"of_key": "key_of_stage", "longest": "longest_beside_now", "moves": "moves_at_most"}
_OWN = {
    "of_stage": "key_of_stage",
    "beside": "is_in_task",
    "longest": "longest_beside_now",
    "reads_again": "reads_again_at_most",
}


class HotSplit(Value, frozen=True, rename=_SPLIT):
    """A stream partition that would be read in ranges by `tasks` tasks, because of a `key`.

    Without that, `task` of `stage` has the share `of_stage` of all records that its tasks take, and the key `of_key`.
    The longest task of the stage would read `longest` times as many records as now; at most `moves` bytes would move.
    """

    stage: str
    stream: str
    partition: int
    task: int
    of_stage: Fraction
    key: str
    of_key: Fraction
    tasks: int
    longest: Fraction
    moves: int

    def __str__(self) -> str:
        return f"{self.stream}-{self.partition}"


def hot_splits(left: Plan, split: Plan) -> tuple[HotSplit, ...]:
    """What the second plan splits, beside the first plan of the same batch, which leaves hot keys in one task."""
    found = [
        each
        for stage in split.stages
        if isinstance(stage.why, HotRanges)
        for each in _of(left, split, stage, stage.why)
    ]
    return tuple(sorted(found, key=lambda each: (-each.of_key, each.stage, each.stream, each.partition)))


def _of(left: Plan, split: Plan, ranges: Stage, why: HotRanges) -> Iterator[HotSplit]:
    stage, stream = left.stage(why.stage), ranges.streams[0].name
    before = _taken(left, stage)
    after = [*_taken(split, split.stage(why.stage)).values()]
    after += [
        records for other in split.stages if _is_for(other, why.stage) for records in _taken(split, other).values()
    ]
    for one in why.partitions:
        readers = [task.task for task in stage.tasks if one.partition in task.reads.get(stream, ())]
        task = max(readers, key=lambda number: before[number])
        planned = left.stream(stream).partitions[one.partition]
        yield HotSplit(
            stage.name,
            stream,
            one.partition,
            task,
            Fraction(before[task], max(1, sum(before.values()))),
            one.key,
            Fraction(one.percent, 100),
            one.tasks,
            Fraction(max(after), max(1, *before.values())),
            planned.bytes * _rows(one, sum(before.values()), planned.records) // max(1, planned.records),
        )


def _is_for(stage: Stage, name: str) -> bool:
    return isinstance(stage.why, HotRanges) and stage.why.stage == name


def _rows(split: SplitPartition, total: int, records: int) -> int:
    """How many rows move at most: one of the key from each range, and one for each record of another key."""
    return min(records, max(0, records - total * split.percent // 100) + split.tasks)


def _taken(plan: Plan, stage: Stage) -> dict[int, int]:
    """The records of streams that each task reads; what several share, they share evenly."""
    readers = {
        (read.name, number): max(1, sum(number in task.reads.get(read.name, ()) for task in stage.tasks))
        for read in stage.streams
        for number in read.numbers
    }
    return {task.task: sum(_share(plan, stage, task, readers)) for task in stage.tasks}


def _share(plan: Plan, stage: Stage, task: Task, readers: dict[tuple[str, int], int]) -> Iterator[int]:
    for read in stage.streams:
        for part in plan.stream(read.name).read_by(task):
            yield part.records if task.span is not None else part.records // readers[read.name, part.partition]


class HotOwn(Value, frozen=True, rename=_OWN):
    """A key with the share `of_stage` of the records of a `stage`, whose `task` would have no other key to speak of.

    It would share the key with the tasks after it, if it needs more `tasks` than one. The key is in task `beside`
    without that. The longest task of the stage would take `longest` times as many records as now, if the other keys
    spread evenly. At most `reads_again` bytes would be read by several tasks.
    """

    stage: str
    key: str
    of_stage: Fraction
    beside: int
    task: int
    longest: Fraction
    reads_again: int
    tasks: int = 1


def hot_own(plan: Plan) -> tuple[HotOwn, ...]:
    """The keys that a plan gives a task of their own, first those that weigh most in their stage."""
    found = [
        each for stage in plan.stages if isinstance(stage.why, OwnTasks) for each in _own_tasks(plan, stage, stage.why)
    ]
    return tuple(sorted(found, key=lambda each: (-each.of_stage, each.stage, each.task)))


def _own_tasks(plan: Plan, stage: Stage, why: OwnTasks) -> Iterator[HotOwn]:
    count = why.of.cosets
    shares = [Fraction(own.percent, 100) for own in why.keys]
    others = (1 - sum(shares, Fraction())) / count
    together = [others] * count
    for own, share in zip(why.keys, shares, strict=True):
        together[own.residue % count] += share
    alone = [(share + others * count / stage.cosets) / own.tasks for own, share in zip(why.keys, shares, strict=True)]
    longest = max(others, *alone) / max(together)
    for own, share, numbers in zip(why.keys, shares, why.numbers, strict=True):
        tasks = [stage.tasks[number] for number in numbers]
        read = (part for task in tasks for each in stage.streams for part in plan.stream(each.name).read_by(task))
        again = sum(part.bytes for part in read)
        yield HotOwn(stage.name, own.key, share, own.residue % count, numbers[0], longest, again, own.tasks)
