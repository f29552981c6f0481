"""Samza's checkpoints: where the first batch starts when a pipeline takes over from a Samza job.

Tasks that commit each their own offsets of a partition have done different parts of it when they stop at different
offsets and their number changes. Coset commits one offset for a whole stream partition, with the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import lcm

from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.values import Value


class SlotClaims(Value, frozen=True):
    """What is done of one stream partition, by slot: the keys with `h(key) mod len(done) = slot`.

    `done[slot]` claims that all their records before this offset are done; None claims nothing. No method drops
    or lowers a claim. Task t of L has the slots ≡ t mod L, so that any number of tasks may follow any other:

    >>> halves = SlotClaims().claim(0, 2, 51).claim(1, 2, 21)
    >>> [halves.start(task, 3, beginning=0) for task in range(3)]
    [21, 21, 21]
    >>> halves.refined(3).done
    (51, 21, 51, 21, 51, 21)
    >>> halves.holds(4, offset=30), halves.holds(5, offset=30)
    (True, False)
    """

    done: tuple[int | None, ...] = (None,)

    def refined(self, tasks: int) -> SlotClaims:
        """The same claims in so many slots that each is of one task of `tasks`: the least common multiple."""
        return SlotClaims(self.done * (lcm(len(self.done), tasks) // len(self.done)))

    def claim(self, task: int, tasks: int, done: int) -> SlotClaims:
        """Claim all records of `task` (of `tasks`) before the offset `done`; what is claimed already stays."""
        return SlotClaims(
            tuple(
                max(done, -1 if before is None else before) if slot % tasks == task else before
                for slot, before in enumerate(self.refined(tasks).done)
            )
        )

    def start(self, task: int, tasks: int, beginning: int) -> int:
        """Where `task` (of `tasks`) starts to read: no later than any of its slots, also those without a claim.

        It leaves out the records that `holds`.
        """
        return min(beginning if done is None else done for done in self.refined(tasks).done[task::tasks])

    def holds(self, h: int, offset: int) -> bool:
        """Whether the record at `offset`, whose key has the hash `h`, is claimed."""
        done = self.done[h % len(self.done)]
        return done is not None and offset < done


_LINE = re.compile(
    r"tasknames\.(?P<task>.+)\.systems\.(?P<system>.+)\.streams\.(?P<stream>.+)"
    r"\.partitions\.(?P<partition>[0-9]{1,9})=(?P<offset>[0-9]{1,18})"
)
_N, _NAME = "(?:0|[1-9][0-9]{0,8})", "[A-Za-z0-9._-]+"
_TASK = re.compile(
    rf"Partition {_N}(?:_({_N})_({_N}))?"
    rf"|SystemStreamPartition \[{_NAME}, {_NAME}, {_N}(?:\]|, ({_N})\]_({_N}))"
)


class Checkpoint(Value, frozen=True, order=True):
    """`offset` is the last one of a partition of `system.stream` that `task` has processed."""

    task: str
    system: str
    stream: str
    partition: int
    offset: int


class Again(Value, frozen=True, order=True):
    """Records that some of Samza's tasks have processed and the first batch reads again: key `buckets` out of `of`.

    >>> print(Again(OffsetRange.parse("views-0@[21,51)"), (0, 2), 3))
    views-0@[21,51) of key buckets 0, 2 out of 3
    """

    range: OffsetRange
    buckets: tuple[int, ...]
    of: int

    def __str__(self) -> str:
        return f"{self.range} of key buckets {', '.join(map(str, self.buckets))} out of {self.of}"


class Start(Value, frozen=True, order=True):
    """Where the first batch starts to read a stream partition, and what of it has been processed before."""

    partition: StreamPartition
    offset: int
    again: tuple[Again, ...]


def read_checkpoints(text: str, where: str) -> tuple[Checkpoint, ...]:
    """The checkpoints that Samza's CheckpointTool printed; `where` names the file in findings.

    >>> read_checkpoints("tasknames.Partition 0.systems.kafka.streams.views.partitions.0=41", "offsets.properties")
    (Checkpoint(task='Partition 0', system='kafka', stream='views', partition=0, offset=41),)

    Raises Refused with all lines that are something else.
    """
    checkpoints, findings = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line.strip())
        if match is not None:
            partition, offset = int(match["partition"]), int(match["offset"])
            checkpoints.append(Checkpoint(match["task"], match["system"], match["stream"], partition, offset))
        elif line.strip() and not line.lstrip().startswith("#"):
            then = "give the lines tasknames.….systems.….streams.….partitions.…=… that Samza's CheckpointTool prints"
            what = f"{line.strip()!r} is no checkpoint"
            findings.append(Finding.of(Kind.CHECKPOINTS, what, f"line {number} of {where}", then, line=number))
    refuse(findings)
    return tuple(checkpoints)


def bucket_of(task: str) -> tuple[int, int]:
    """The key bucket that a task of Samza processed, and out of how many, by its name.

    >>> bucket_of("Partition 3_1_2"), bucket_of("SystemStreamPartition [kafka, views, 3]")
    ((1, 2), (0, 1))

    Raises Refused for other names, those of 1.8.0 under a factor among them: they do not tell the factor.
    """
    if match := _TASK.fullmatch(task):
        bucket, factor = [int(number) for number in match.groups() if number is not None] or (0, 1)
        if bucket < factor:
            return bucket, factor
    what = f"the name {task!r} does not say which keys the task processed"
    then = "leave this task out: its keys start where the stream does"
    raise Refused.of(Kind.CHECKPOINTS, what, "checkpoints", then, task=task)


def claims_of(checkpoints: Sequence[Checkpoint], system: str, stream: str, partition: int) -> SlotClaims:
    """All that is done of a partition by these checkpoints; each is believed, whatever factor it was made under.

    Raises Refused, with all findings, for a task name without a meaning, and if two tasks have the same keys.
    """
    findings: list[Finding] = []
    claims = SlotClaims()
    claimed: dict[tuple[int, int], str] = {}
    for checkpoint in sorted(checkpoints):
        if (checkpoint.system, checkpoint.stream, checkpoint.partition) != (system, stream, partition):
            continue
        try:
            own = bucket_of(checkpoint.task)
        except Refused as refusal:
            findings.extend(refusal.findings)
            continue
        if own in claimed:
            what = f"tasks {claimed[own]!r} and {checkpoint.task!r} both processed {stream}-{partition}"
            then = "leave out tasks that are no more; a stream that was broadcast is a table, which has no start"
            findings.append(
                Finding.of(
                    Kind.CHECKPOINTS,
                    what,
                    "checkpoints",
                    then,
                    tasks=(claimed[own], checkpoint.task),
                    stream=stream,
                    partition=partition,
                )
            )
        claimed[own] = checkpoint.task
        claims = claims.claim(*own, checkpoint.offset + 1)
    refuse(findings)
    return claims


def starts(checkpoints: Sequence[Checkpoint], system: str, stream: str, beginnings: Sequence[int]) -> tuple[Start, ...]:
    """Where to start each partition of a stream whose earliest offsets are `beginnings`, so that no record is lost.

    A partition starts where the key bucket that is furthest behind does; one without any checkpoint has nothing
    behind it and starts at the beginning. Records that the others have done beyond that are read again.

    >>> halves = [Checkpoint("Partition 0_0_2", "kafka", "views", 0, 50),
    ...           Checkpoint("Partition 0_1_2", "kafka", "views", 0, 20)]
    >>> for start in starts(halves, "kafka", "views", [0, 0]): print(start.partition, start.offset, *start.again)
    views-0 21 views-0@[21,51) of key buckets 0 out of 2
    views-1 0

    Raises Refused as `claims_of` does, and for checkpoints of partitions that the stream does not have.
    """
    findings = list(_beyond(checkpoints, system, stream, len(beginnings)))
    start_points = []
    for number, beginning in enumerate(beginnings):
        with noting(findings):
            claims = claims_of(checkpoints, system, stream, number)
            partition, offset = StreamPartition(stream, number), claims.start(0, 1, beginning)
            start_points.append(Start(partition, offset, tuple(_again(claims, partition, offset))))
    refuse(findings)
    return tuple(start_points)


def _beyond(checkpoints: Sequence[Checkpoint], system: str, stream: str, partitions: int) -> Iterator[Finding]:
    named = {point.partition for point in checkpoints if (point.system, point.stream) == (system, stream)}
    for number in sorted(named - set(range(partitions))):
        what = f"there is a checkpoint of {stream}-{number}, but {stream} has {partitions} partitions"
        then = "give the stream's own partition count"
        yield Finding.of(
            Kind.CHECKPOINTS, what, "checkpoints", then, stream=stream, number=number, partitions=partitions
        )


def _again(claims: SlotClaims, partition: StreamPartition, start: int) -> Iterator[Again]:
    for done in sorted({claim for claim in claims.done if claim is not None and claim > start}):
        buckets = tuple(slot for slot, claim in enumerate(claims.done) if claim == done)
        yield Again(OffsetRange(partition, start, done), buckets, len(claims.done))
