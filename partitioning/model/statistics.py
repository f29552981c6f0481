"""Statistics: what the last batches read, made and took, from their receipts. Planning may use them and needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import field

from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.private import MASK
from partitioning.model.receipt import (
    MODULUS,
    HeavyKey,
    PartitionReceipt,
    Receipt,
    Role,
    TaskReceipt,
    least_and_most_read,
)
from partitioning.values import Value, replace


class TaskFigures(Value, frozen=True):
    """The work of a task: records and bytes read, and seconds of work, None if not measured.

    `taken` of the records were its own, the others belong to other tasks. None if all were its own.
    """

    records: int
    bytes: int
    seconds: float | None = None
    taken: int | None = None

    @property
    def own(self) -> int:
        """The records that it took."""
        return self.records if self.taken is None else self.taken


class KeyFigures(Value, frozen=True):
    """A frequent key: at least `records` of each stream's records that a task took have it."""

    task: TaskRef
    key: str
    records: Mapping[str, int]

    @property
    def total(self) -> int:
        """Its records in all streams."""
        return sum(self.records.values())


class HeavyShare(Value, frozen=True):
    """A frequent key of a partition of an input: at least `records` of the `of` records that a stage took of it."""

    input: str
    partition: int
    key: str
    records: int
    of: int


class Statistics(Value, frozen=True):
    """Figures of one batch: the `records` of each stream and step, if known, and the figures of each task.

    `cosets` is L of each stage, `groups` the number of task groups of the largest wave, `keys` the frequent keys by
    task, `heavy` those by partition.
    """

    batch: int
    records: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[TaskRef, TaskFigures] = field(default_factory=dict)
    cosets: Mapping[str, int] = field(default_factory=dict)
    groups: int | None = None
    keys: tuple[KeyFigures, ...] = ()
    heavy: tuple[HeavyShare, ...] = ()


def statistics_of(plan: Plan, receipts: Iterable[Receipt]) -> Statistics:
    """The figures of a batch, from its plan and the receipts of all task groups.

    A stream that several tasks read counts once. Steps count if they are written to a table. Bytes are the plan's. A
    key that several tasks share is the first one's.
    """
    tasks = sorted((task for receipt in receipts for task in receipt.tasks), key=lambda task: task.task)
    once = counted_once(plan, tasks).tasks
    return Statistics(
        plan.batch,
        _read(once) | _written(plan, tasks),
        {task.task: _figures(plan, task) for task in tasks},
        {stage.name: stage.by_scheme for stage in plan.stages},
        most_groups(plan),
        tuple(key for task in once for key in _keys(task)),
        tuple(_heavy(once)),
    )


def most_groups(plan: Plan) -> int:
    """How many task groups may run at the same time: those of the largest wave."""
    return max(Counter(group.wave for group in plan.groups).values())


def _read(tasks: Iterable[TaskReceipt]) -> dict[str, int]:
    by_stage: dict[tuple[str, int, str], list[PartitionReceipt]] = {}
    for task in tasks:
        for seen in task.partitions:
            by_stage.setdefault((seen.input, seen.partition, task.task.stage), []).append(seen)
    parts: dict[tuple[str, int], int] = {}
    for (stream, partition, _), receipts in by_stage.items():
        _, most = least_and_most_read(receipts)
        parts[stream, partition] = max(parts.get((stream, partition), 0), most)
    counts: Counter[str] = Counter()
    for (stream, _), records in parts.items():
        counts[stream] += records
    return dict(counts)


def _written(plan: Plan, tasks: Iterable[TaskReceipt]) -> dict[str, int]:
    # An upserted table's files have rows of earlier batches too.
    writes = (write.declared for write in plan.writes() if not write.declared.mode.by_key)
    steps = {write.table: write.step for write in writes}
    rows = Counter(dict.fromkeys(steps, 0))
    for task in tasks:
        for artefact in task.left(Role.TABLE):
            rows[artefact.name] += artefact.records
    return {step: rows[table] for table, step in steps.items()}


def _figures(plan: Plan, receipt: TaskReceipt) -> TaskFigures:
    stage = plan.stage(receipt.task.stage)
    task = stage.tasks[receipt.task.task]
    return TaskFigures(
        sum(seen.read for seen in receipt.partitions),
        sum(planned.bytes for read in stage.streams for planned in plan.stream(read.name).read_by(task)),
        receipt.milliseconds / 1000,
        sum(seen.taken for seen in receipt.partitions),
    )


def _keys(receipt: TaskReceipt) -> list[KeyFigures]:
    """The heavy keys. Private ones look alike, so that each counts by itself."""
    records: dict[str, Counter[str]] = {}
    alone = []
    for seen in receipt.partitions:
        for heavy in seen.heavy:
            if heavy.key == MASK:
                alone.append(KeyFigures(receipt.task, MASK, {seen.input: heavy.records}))
            else:
                records.setdefault(heavy.key, Counter())[seen.input] += heavy.records
    return [*(KeyFigures(receipt.task, key, dict(streams)) for key, streams in records.items()), *alone]


def _heavy(tasks: Iterable[TaskReceipt]) -> Iterator[HeavyShare]:
    """The heavy keys of each partition, over all tasks of a stage. Of private keys, which look alike, the heaviest of
    each task counts. If several stages read a partition, the one that took most of it counts."""
    by_stage: dict[tuple[str, int], dict[str, list[PartitionReceipt]]] = {}
    for task in tasks:
        for seen in task.partitions:
            by_stage.setdefault((seen.input, seen.partition), {}).setdefault(task.task.stage, []).append(seen)
    for (read, partition), stages in sorted(by_stage.items()):
        taken, receipts = max(((sum(seen.taken for seen in some), some) for some in stages.values()), key=itemgetter(0))
        records = Counter[str]()
        for seen in receipts:
            first = {heavy.key: heavy.records for heavy in reversed(seen.heavy)}
            records.update(first)
        yield from (HeavyShare(read, partition, key, count, taken) for key, count in records.most_common())


# A stage, its input, and a partition.
Place = tuple[str, str, int]

# The figures of a partition that add up over its ranges.
_FIGURES = ("read", "taken", "dropped", "nulls", "disorder", "foreign", "stray", "keys", "set_aside")


class CountedOnce(Value, frozen=True):
    """The receipts of a batch's tasks, those that share a key as the first one's.

    `differing` counts, by place, the tasks that took other records than the first where all have to take the same.
    """

    tasks: tuple[TaskReceipt, ...]
    differing: Mapping[Place, int]


def counted_once(plan: Plan, tasks: Iterable[TaskReceipt]) -> CountedOnce:
    """What tasks did, those that share a hot key as one."""
    by_task = {receipt.task: receipt for receipt in tasks}
    differing = Counter[Place]()
    for stage in plan.stages:
        for numbers in stage.shares:
            refs = [TaskRef(stage.name, number) for number in numbers]
            if found := [by_task.pop(ref) for ref in refs if ref in by_task]:
                by_task[refs[0]] = replace(found[0], task=refs[0], partitions=tuple(_as_one(stage, found, differing)))
    return CountedOnce(tuple(by_task[ref] for ref in sorted(by_task)), differing)


def _as_one(stage: Stage, shares: Sequence[TaskReceipt], differing: Counter[Place]) -> Iterator[PartitionReceipt]:
    """What tasks that share a key saw of each partition, as if one had done it.

    Each takes a range of one stream and, of the other inputs, all that there is of the key. So what they took of that
    stream adds up. All took the same records of the others, which count once.
    """
    ranged = stage.tasks[shares[0].task.task].ranged
    places: dict[tuple[str, int], list[PartitionReceipt]] = {}
    for seen in (seen for share in shares for seen in share.partitions):
        places.setdefault((seen.input, seen.partition), []).append(seen)
    for (read, partition), some in places.items():
        if read == ranged:
            yield _together(some)
        else:
            differing[stage.name, read, partition] += sum(_took(seen) != _took(some[0]) for seen in some)
            # What breaks a rule in any of them counts.
            yield replace(some[0], **{figure: _total(some, figure) for figure in ("disorder", "foreign", "stray")})


def _total(receipts: Iterable[PartitionReceipt], figure: str) -> int:
    return sum(getattr(seen, figure) for seen in receipts)


def _took(seen: PartitionReceipt) -> object:
    """What says which records of a partition a task took."""
    return seen.start, seen.end, seen.read, seen.taken, seen.dropped, seen.nulls, seen.digest, seen.held


def _together(ranges: Sequence[PartitionReceipt]) -> PartitionReceipt:
    """What tasks saw of ranges of a partition, as one that saw all of them."""
    first, last = min(ranges, key=lambda seen: seen.start), max(ranges, key=lambda seen: seen.end)
    heavy = Counter[str]()
    for seen in ranges:
        heavy.update({key.key: key.records for key in seen.heavy})
    unread = [seen.reached for seen in ranges if seen.reached is not None and seen.reached < seen.end]
    latest = [seen.latest for seen in ranges if seen.latest is not None]

    def digest(figure: str) -> str:
        found = [getattr(seen, figure) for seen in ranges]
        return f"{sum(int(each, 16) for each in found if each) % MODULUS:016x}" if any(found) else ""

    return replace(
        first,
        end=last.end,
        **{figure: _total(ranges, figure) for figure in _FIGURES},
        digest=digest("digest"),
        offenders=tuple(offender for seen in ranges for offender in seen.offenders),
        heavy=tuple(HeavyKey(key, records) for key, records in heavy.most_common()),
        held=digest("held"),
        reached=None if last.reached is None else min([*unread, last.reached]),
        digest_aside=digest("digest_aside"),
        latest=max(latest, default=None),
    )


class Locality(Value, frozen=True):
    """The location where each group and each task ran last, by number. Absent figures are unknown."""

    groups: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[TaskRef, str] = field(default_factory=dict)
