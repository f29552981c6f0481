"""Samza's groupings and groupers, for people who come from Samza: the same tasks in the same groups as there.

The groupings plan nothing. docs/how-to/coming-from.md says what Samza does to keys, and what Coset does instead. Name a
grouper by import path, as `partitioning.samza.groupers:group_by_container_count`. Containers are task groups; tasks go
by the text of their names, so that `views/10` is before `views/2`.

Key buckets are the parts of a stream partition that Samza's virtual tasks process (SAMZA-2687): to find out which task
had a key, and which keys had none. Coset's own tasks own residues of the placement hash instead, `h(key) mod L`: that
is never negative, every one of the L residues has a task, and co-partitioned streams agree on it by construction.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from partitioning.errors import Finding, Refused, refuse
from partitioning.hashes import java_hash
from partitioning.kinds import Kind
from partitioning.model.plan import TaskRef
from partitioning.model.statistics import Locality
from partitioning.planning.groups.grouping import Grouped, SizedTask
from partitioning.values import Value, replace


def group_by_container_count(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Round robin; after a change of the number of groups only as many tasks move as fit the even sizes.

    The sizes are even by rank: the first groups have the odd tasks. With as many groups as before nothing
    changes, however uneven it is. All is grouped anew if the tasks are not those of before, if the groups of
    before do not have successive numbers, or if there is or was one group only. Raises Refused for more groups
    than tasks.
    """
    names = _names(tasks, groups)
    if len(groups) > len(names):
        what = f"{len(groups)} groups for {len(names)} tasks leave some empty"
        raise Refused.of(Kind.SAMZA, what, "groups", "ask for fewer", groups=len(groups), names=len(names))
    former = sorted(set(before.values()))
    same = set(before) == set(names) and former == list(range(groups[0], groups[0] + len(former)))
    if not same or 1 in (len(former), len(groups)):
        return _round_robin(names, groups)
    return Grouped(before if len(former) == len(groups) else _resized(names, groups, before))


def group_by_container_ids(
    tasks: Sequence[SizedTask], groups: Sequence[int], before: Mapping[TaskRef, int], locality: Locality
) -> Grouped:
    """Round robin over the groups in the order given, over the lowest numbers if there are more than tasks."""
    names = _names(tasks, groups)
    return _round_robin(names, groups if len(groups) <= len(names) else sorted(groups)[: len(names)])


def _names(tasks: Sequence[SizedTask], groups: Sequence[int]) -> list[TaskRef]:
    if not tasks or not groups:
        what = f"{len(tasks)} tasks for {len(groups)} groups"
        raise Refused.of(Kind.SAMZA, what, "groups", "give at least one of each", tasks=len(tasks), groups=len(groups))
    return sorted((sized.task for sized in tasks), key=lambda task: (task.stage, str(task.task)))


def _round_robin(names: Sequence[TaskRef], groups: Sequence[int]) -> Grouped:
    return Grouped({task: groups[place % len(groups)] for place, task in enumerate(names)})


def _resized(names: Sequence[TaskRef], groups: Sequence[int], before: Mapping[TaskRef, int]) -> dict[TaskRef, int]:
    """Each group gives its last tasks beyond its size; the others take them from the first on."""
    least, odd = divmod(len(names), len(groups))
    sizes = {group: least + (rank < odd) for rank, group in enumerate(groups)}
    members: dict[int, list[TaskRef]] = {group: [] for group in sorted({*groups, *before.values()})}
    for task in names:
        members[before[task]].append(task)
    spare: list[TaskRef] = []
    for group, own_tasks in members.items():
        while len(own_tasks) > sizes.get(group, 0):
            spare.append(own_tasks.pop())
    for group, size in sizes.items():
        while len(members[group]) < size:
            members[group].append(spare.pop(0))
    return {task: group for group in groups for task in members[group]}


# Which Samza answers: the release (1.8.0), or the elasticity work before it was reverted.
RELEASE = "release"
ELASTIC_FINAL = "elastic final"
BUILDS = (RELEASE, ELASTIC_FINAL)

_SLOTS = 31
_MIN = -(2**31)


def key_bucket(
    key: object, offset: str | None, factor: int, *, key_format: str = "string", build: str = RELEASE
) -> int:
    """The bucket of a record among `factor`, exactly as Samza gives it; a boolean key is Java's Boolean.

    A record without a key goes by its offset's text, one without either to bucket 0. Factor 1 has no buckets: -1.
    The hash -2^31 gives a negative bucket, which no task of Samza owns, so that the record is skipped:

    >>> [key_bucket(key, "0", 3) for key in ("user-1", "user-2", "polygenelubricants")]
    [0, 2, -2]

    Raises Refused for a factor below 1, an unknown build or a key that its format cannot hold.
    """
    refuse(check_build(factor, build))
    if factor == 1:
        return -1
    h = _hash(key, offset, key_format)
    # Java has no absolute value of -2^31.
    absolute = h if h == _MIN else abs(h)
    return _rem(absolute if build == RELEASE else _rem(absolute, _SLOTS), factor)


def check_build(factor: int, build: str) -> Iterator[Finding]:
    """Findings for an elasticity factor or the name of a build."""
    if factor < 1:
        what = f"an elasticity factor of {factor} gives no key buckets"
        yield Finding.of(Kind.SAMZA, what, "factor", "use 1 or more", factor=factor)
    if build not in BUILDS:
        what = f"unknown build {build!r} of Samza"
        yield Finding.of(Kind.SAMZA, what, "build", f"use {' or '.join(BUILDS)}", build=build)


def _hash(key: object, offset: str | None, key_format: str) -> int:
    if isinstance(key, bool):
        return 1231 if key else 1237
    if key is not None:
        return java_hash(key, key_format)
    return 0 if offset is None else java_hash(offset)


def _rem(dividend: int, divisor: int) -> int:
    """Java's remainder: it has the sign of the dividend."""
    return dividend % divisor if dividend >= 0 else -(-dividend % divisor)


# The elastic final build allows no more key buckets.
_MOST_BUCKETS = 16

_BROADCAST = re.compile(
    r"(?P<system>[^#.]*)\.(?P<stream>[^#]*)"
    r"#(?:(?P<one>[0-9]{1,9})|\[(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})\])"
)


class SystemPartition(Value, frozen=True):
    """A partition of a system's stream, or one key bucket of it (Samza: SystemStreamPartition).

    >>> print(SystemPartition("kafka", "views", 3), SystemPartition("kafka", "views", 3, bucket=1))
    kafka.views#3 kafka.views#3/1
    """

    system: str
    stream: str
    partition: int
    bucket: int | None = None

    def __str__(self) -> str:
        whole = f"{self.system}.{self.stream}#{self.partition}"
        return whole if self.bucket is None else f"{whole}/{self.bucket}"


Grouping = dict[str, tuple[SystemPartition, ...]]


def group_by_partition(
    inputs: Mapping[str, int], *, broadcast: str = "", factor: int = 1, build: str = RELEASE
) -> Grouping:
    """Samza's GroupByPartition: task p has partition p of every stream; under a factor, one key bucket of each.

    `inputs` gives each stream's partition count, by `system.stream`. `broadcast` is the text of
    `task.broadcast.inputs`: what it names is in every task, undivided, whether it exists or not. Tasks are in
    the order of their names as text, as Samza takes them; there are none if every partition is broadcast.

    >>> for task, partitions in group_by_partition({"kafka.views": 2, "kafka.clicks": 3}).items():
    ...     print(f"{task}:", *partitions)
    Partition 0: kafka.clicks#0 kafka.views#0
    Partition 1: kafka.clicks#1 kafka.views#1
    Partition 2: kafka.clicks#2

    Raises Refused, with all findings, for what Samza does not take either: a factor below 1 (elastic final: or
    above 16), a stream without a system, another form of `broadcast`.
    """

    def name(part: SystemPartition) -> str:
        if part.bucket is None:
            return f"Partition {part.partition}"
        between, after = ("_", f"_{factor}") if build == ELASTIC_FINAL else (" ", "")
        return f"Partition {part.partition}{between}{part.bucket}{after}"

    return _grouped(inputs, broadcast, factor, build, name)


def group_by_stream_partition(
    inputs: Mapping[str, int], *, broadcast: str = "", factor: int = 1, build: str = RELEASE
) -> Grouping:
    """Samza's GroupBySystemStreamPartition: a task for each stream partition, or each key bucket of one.

    It is otherwise as `group_by_partition`, and raises the same. It never brings two streams together.

    >>> list(group_by_stream_partition({"kafka.views": 1}, factor=2))
    ['SystemStreamPartition [kafka, views, 0, 0]', 'SystemStreamPartition [kafka, views, 0, 1]']
    """

    def name(part: SystemPartition) -> str:
        whole = f"{part.system}, {part.stream}, {part.partition}"
        if part.bucket is None:
            return f"SystemStreamPartition [{whole}]"
        after = f"_{factor}" if build == ELASTIC_FINAL else ""
        return f"SystemStreamPartition [{whole}, {part.bucket}]{after}"

    return _grouped(inputs, broadcast, factor, build, name)


def previous_partition(partition: int, before: int, now: int) -> int:
    """Where the keys of a partition were when the stream had `before` partitions and not `now`.

    Samza: HashSystemStreamPartitionMapper.

    >>> [previous_partition(partition, before=2, now=4) for partition in range(4)]
    [0, 1, 0, 1]

    Raises Refused unless `now` is a multiple of `before`. Coset's plans take any other change too.
    """
    if before < 1 or now % before:
        what = f"{now} partitions are no multiple of the {before} before"
        then = "grow the stream to a multiple of its partitions"
        raise Refused.of(Kind.SAMZA, what, f"partition {partition}", then, now=now, before=before)
    return partition % before


def _grouped(
    inputs: Mapping[str, int], broadcast: str, factor: int, build: str, name: Callable[[SystemPartition], str]
) -> Grouping:
    findings = [*check_build(factor, build), *_beyond(factor, build), *_without_system(inputs)]
    everywhere = _broadcast(broadcast, findings)
    refuse(findings)
    tasks: defaultdict[str, set[SystemPartition]] = defaultdict(set)
    for stream, count in inputs.items():
        system, _, topic = stream.partition(".")
        for whole in (SystemPartition(system, topic, partition) for partition in range(count)):
            for bucket in range(factor) if whole not in everywhere else ():
                part = replace(whole, bucket=bucket) if factor > 1 else whole
                tasks[name(part)].add(part)
    return {task: _sorted(tasks[task] | everywhere) for task in sorted(tasks)}


def _sorted(parts: Iterable[SystemPartition]) -> tuple[SystemPartition, ...]:
    return tuple(sorted(parts, key=lambda part: (part.system, part.stream, part.partition)))


def _beyond(factor: int, build: str) -> Iterable[Finding]:
    if build == ELASTIC_FINAL and factor > _MOST_BUCKETS:
        what = f"{factor} key buckets are more than {_MOST_BUCKETS}"
        yield Finding.of(Kind.SAMZA, what, "factor", f"use 1 to {_MOST_BUCKETS}", factor=factor)


def _without_system(inputs: Mapping[str, int]) -> Iterable[Finding]:
    for stream in inputs:
        if "." not in stream:
            what = f"stream {stream!r} names no system"
            yield Finding.of(Kind.SAMZA, what, "inputs", "write it as system.stream", stream=stream)


def _broadcast(text: str, findings: list[Finding]) -> frozenset[SystemPartition]:
    """The partitions that a text such as `kafka.rates#0, kafka.planes#[0-3]` names."""
    named: set[SystemPartition] = set()
    for part in text.split(",") if text else ():
        match = _BROADCAST.fullmatch(part.strip())
        if match is None:
            then = "write it as system.stream#3 or system.stream#[0-3]"
            what = f"{part.strip()!r} names no stream partitions"
            findings.append(Finding.of(Kind.SAMZA, what, "broadcast", then, named=part.strip()))
            continue
        first, last = match["one"] or match["first"], match["one"] or match["last"]
        named.update(SystemPartition(match["system"], match["stream"], n) for n in range(int(first), int(last) + 1))
    return frozenset(named)
