"""Hot keys and hot partitions: those with so many records that a task of theirs is heavy, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from partitioning.hashes import hash_of, read_key
from partitioning.model.graph import Op
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.private import MASK
from partitioning.model.reasons import AllTogether, BeforeMoving, HotRanges, OwnTasks, SplitPartition
from partitioning.model.schemes import Scheme, records
from partitioning.model.schemes import tasks as scheme_of
from partitioning.model.stage_inputs import ExchangeInput, Input, StreamInput
from partitioning.model.statistics import KeyFigures, Statistics
from partitioning.model.takes import Task
from partitioning.planning.stages.hot_ranges import LEAST, Unsplit, splittable
from partitioning.planning.stages.record_ranges import kept_together, leaving, splits_joins
from partitioning.values import Value

# A partition is hot from this many times the records of a mean partition of its stream on.
_HOT = 2


class HotPartition(Value, frozen=True):
    """A stream partition that a stage reads as a whole: its `records` are `of_mean` times those of a mean one.

    `scheme` would assign it to tasks of about as many records as a mean partition has, if the stage allows that.
    """

    stage: str
    stream: str
    partition: int
    records: int
    of_mean: Fraction
    scheme: Scheme

    def __str__(self) -> str:
        return f"{self.stream}-{self.partition}"


def hot_partitions(plan: Plan) -> tuple[HotPartition, ...]:
    """The hot partitions of what a plan reads, those first that weigh most in their stream. Tables have none."""
    hot = [partition for stage in plan.stages for partition in _hot_partitions(plan, stage)]
    return tuple(sorted(hot, key=lambda each: (-each.of_mean, each.stage, each.stream, each.partition)))


def most_records(mean: Fraction) -> int:
    """About the mean number of records, in two digits and not below it.

    >>> [most_records(Fraction(mean)) for mean in (0, 7, 99, 101, 12_345)]
    [1, 7, 99, 110, 13000]
    """
    whole = max(1, -(-mean.numerator // mean.denominator))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return int(-(-whole // unit) * unit)


def _hot_partitions(plan: Plan, stage: Stage) -> Iterator[HotPartition]:
    if isinstance(stage.why, AllTogether | BeforeMoving | HotRanges):
        # The stage has one task in any case, or serves a changed partition count and cannot be given a scheme.
        return
    in_ranges = {
        (name, number) for task in stage.tasks if task.span for name in task.reads for number in task.reads[name]
    }
    for read in stage.streams:
        stream = plan.stream(read.name)
        counts = {number: stream.partitions[number].records for number in read.numbers}
        mean = Fraction(sum(counts.values()), max(1, len(counts)))
        for number, count in counts.items():
            if not stream.declared.table and (read.name, number) not in in_ranges and count >= _HOT * mean > 0:
                most = records(most_records(mean))
                yield HotPartition(stage.name, read.name, number, count, count / mean, most)


ISOLATE, COMBINE, SPREAD, SPLIT, NOTHING = "isolate", "combine", "spread", "split", "nothing"

# A key is hot from this share of a mean task's records on.
BOUND = Fraction(1, 2)
# Other keys in a key's task are few if the task is at most this much heavier than the key, or than a mean task.
_LITTLE = Fraction(5, 4)


class HotKey(Value, frozen=True):
    """A key with at least `records` of the records that `task` of `stage` took.

    They are the share `of_task` of what the task took, and `of_mean` of what a mean task took. `remedy` is isolate,
    combine, spread, split or nothing; `scheme` isolates or spreads the key; `why` says what the remedy does.
    """

    stage: str
    task: int
    key: str
    records: int
    of_task: Fraction
    of_mean: Fraction
    remedy: str
    scheme: Scheme | None
    why: str


def hot_keys(plan: Plan, statistics: Statistics, max_tasks: int = 1000) -> tuple[HotKey, ...]:
    """The hot keys of a batch that ran, by its plan and its figures; first those that weigh most in their stage.

    Tasks look at every record they take and name the keys that have a twentieth or more of a stream partition's,
    with a count that is never too high. A key of several streams that is heavy in one of them has that one's count.
    """
    hot = [key for stage in plan.stages for key in _of_stage(plan, stage, statistics, max_tasks)]
    return tuple(sorted(hot, key=lambda key: (-key.of_mean, key.stage, key.task, key.key)))


def _of_stage(plan: Plan, stage: Stage, statistics: Statistics, max_tasks: int) -> Iterator[HotKey]:
    if not any(step.keyed for step in stage.steps):
        return
    tasks = [TaskRef(stage.name, task.task) for task in stage.tasks if not task.null_keys]
    took = {task: statistics.tasks[task].own for task in tasks if task in statistics.tasks}
    mean = Fraction(sum(took.values()), len(tasks))
    for numbers in stage.shares:
        first, *later = (TaskRef(stage.name, number) for number in numbers)
        took[first] = sum(took.get(task, 0) for task in (first, *later))
    shared = {TaskRef(stage.name, numbers[0]) for numbers in stage.shares}
    hot = [key for key in statistics.keys if key.task in took and key.total >= BOUND * mean]
    for key in hot:
        remedy, scheme, why = _remedy(stage, key, [other.key for other in hot], took[key.task], mean, max_tasks)
        if took[key.task] > _LITTLE * mean and _can_be_split(plan, stage, key):
            why = "hot_keys = 'split' gives ranges of its stream partition to several tasks, and their rows to this one"
            remedy, scheme = SPLIT, None
        elif key.total > _LITTLE * mean and _can_be_shared(plan, stage, key):
            why = "hot_keys = 'split' gives ranges of it in one stream to several tasks, and what joins it to each"
            remedy, scheme = SPLIT, None
        if key.task in shared:
            remedy, scheme, why = NOTHING, None, "several tasks share it already"
        yield HotKey(
            stage.name,
            key.task.task,
            key.key,
            key.total,
            Fraction(key.total, took[key.task]),
            key.total / mean,
            remedy,
            scheme,
            why,
        )


def _remedy(
    stage: Stage, key: KeyFigures, hot: Sequence[str], task: int, mean: Fraction, max_tasks: int
) -> tuple[str, Scheme | None, str]:
    inputs = [source for source in stage.inputs if source.name in key.records]
    if all(isinstance(read, ExchangeInput) for read in inputs) and _only_aggregated(stage):
        why = "partial() and combine() in place of aggregate() move one row of it from each task that has some"
        return COMBINE, None, why
    if task <= _LITTLE * mean:
        return NOTHING, None, "its task has hardly more records than a mean one"
    enough = _LITTLE * max(Fraction(key.total), mean)
    if task <= enough and (partial := _partial_steps(stage)):
        most = records(most_records(mean))
        return SPREAD, most, f"--scheme '{partial[0]}={most}' assigns its records to several tasks, their rows to one"
    if task <= enough and _only_aggregated(stage):
        most = records(most_records(mean))
        why = f"partial() and combine() in place of aggregate(), and {most} for the partial step, assign its records"
        return COMBINE, most, f"{why} to several tasks"
    if task <= enough:
        why = "its task holds little else, so more tasks do not help; aggregate its records before they arrive"
        return NOTHING, None, why
    if any(source.placement.hash == OPAQUE for source in inputs):
        why = f"the placement is {OPAQUE}, so what shares its stream partition cannot be told apart by hash"
        return NOTHING, None, why
    if MASK in hot:
        return NOTHING, None, "keys are private, so which number of tasks parts them cannot be said"
    rest = task - key.total
    for tasks in range(2 * stage.by_scheme, max_tasks + 1, stage.by_scheme):
        beside = Fraction(rest * stage.by_scheme, tasks)
        if key.total + beside <= enough and _alone(inputs[0], key.key, hot, tasks):
            why = f"in one of {tasks} tasks it shares with about {round(beside):,} records instead of {rest:,}"
            return ISOLATE, scheme_of(tasks), why
    return NOTHING, None, f"no number of tasks up to {max_tasks:,} parts it from other hot keys"


def _only_aggregated(stage: Stage) -> bool:
    return all(step.op is Op.AGGREGATE for step in stage.steps if step.keyed)


def _partial_steps(stage: Stage) -> list[str]:
    """The steps that let several tasks share a key, if every step that needs keys together only combines their rows."""
    combines = all(step.op is Op.COMBINE for step in stage.steps if step.keyed)
    return [step.name for step in stage.steps if step.op is Op.PARTIAL] if combines else []


def _alone(placed: Input, key: str, hot: Sequence[str], tasks: int) -> bool:
    """Whether the key has a task of its own among the hot keys, with this number of tasks."""
    h = hash_of(placed.placement.hash, f"placement of {placed.name}")
    residues = [h(read_key(text, placed.placement.key_format), placed.placement.key_format) % tasks for text in hot]
    return residues.count(residues[hot.index(key)]) == 1


def _can_be_split(plan: Plan, stage: Stage, key: KeyFigures) -> bool:
    """Whether the stream partitions that hold a key may be read in ranges."""
    moved = {exchange.source for exchange in plan.exchanges}
    reads = [read for read in stage.inputs if read.name in key.records]
    return bool(reads) and all(
        isinstance(read, StreamInput)
        and not isinstance(splittable(stage.name, stage.steps, read, plan.graph, moved), Unsplit)
        for read in reads
    )


def _can_be_shared(plan: Plan, stage: Stage, key: KeyFigures) -> bool:
    """Whether several tasks may share a key that is joined, each with a range of the stream that has most of it."""
    if not splits_joins(stage.steps) or stage.partitioner or key.key == MASK or key.total < LEAST:
        return False
    streams = [plan.stream(read.name).declared for read in stage.streams]
    if not streams or any(read.placement.hash == OPAQUE for read in stage.inputs):
        return False
    most = max(streams, key=lambda stream: key.records.get(stream.name, 0))
    return not kept_together(most.name, streams, stage.steps, leaving(plan, stage))


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
    others = (each for each in split.stages if isinstance(each.why, HotRanges) and each.why.stage == why.stage)
    after += [records for other in others for records in _taken(split, other).values()]
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
