"""Samza's own groupings of stream partitions into tasks, for people who come from there and compare.

Nothing is planned by them. What they do to keys, and what Coset does instead, is in `docs/internals/samza.md`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.samza.key_buckets import ELASTIC_FINAL, RELEASE, check_build
from partitioning.values import Value, replace

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
    if findings:
        raise Refused(*findings)
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
