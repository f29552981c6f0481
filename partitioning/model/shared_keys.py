"""Shared keys: what the tasks that share a hot key did, as if one had done it.

Each of them takes a range of one stream and, of the other inputs, all that there is of the key. So what they took of
that stream adds up. What they took of the others has to be the same in all, and counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.receipt import MODULUS, HeavyKey, PartitionReceipt, TaskReceipt
from partitioning.values import Value, replace

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
    """What tasks that share a key saw of each partition."""
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
