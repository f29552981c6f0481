"""The plan document: all that a batch will read, run and write, fixed before anything runs.

Everything that shows a plan and everything that runs it reads this one document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from partitioning.assignment import Task
from partitioning.offsets import OffsetRange, StreamPartition
from partitioning.pipeline import Step, Write
from partitioning.streams import Column, InputFile, Stream

VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A stream partition in this batch: read [start, end); `committed` is where the last batch ended.

    `files` are those that hold the range, pinned by size and etag. `bytes` is the range's share of them.
    """

    partition: int
    beginning: int
    committed: int
    start: int
    end: int
    bytes: int
    files: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """A stream in this batch: its declaration, its columns, and every partition by number."""

    declared: Stream
    columns: tuple[Column, ...]
    partitions: tuple[PlannedPartition, ...]

    @property
    def name(self) -> str:
        return self.declared.name

    def range(self, partition: int) -> OffsetRange:
        """What the batch reads of a partition."""
        planned = self.partitions[partition]
        return OffsetRange(StreamPartition(self.name, partition), planned.start, planned.end)


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A result table of a stage, its columns included (without `_batch` and `_task`)."""

    declared: Write
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the pipeline that runs without moving records between tasks.

    `cosets` is L; `tasks` has one more if some stream gives records without a key their own task.
    `why` says in a sentence how L came about.
    """

    name: str
    streams: tuple[str, ...]
    steps: tuple[Step, ...]
    writes: tuple[PlannedWrite, ...]
    scheme: str
    cosets: int
    why: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True, order=True, slots=True)
class TaskRef:
    """A task of a stage; prints as `flights+planes/3`."""

    stage: str
    task: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.task}"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The tasks that one Spark job runs, and how many bytes and records they read."""

    group: int
    tasks: tuple[TaskRef, ...]
    bytes: int
    records: int


@dataclass(frozen=True)
class Plan:
    """One batch of a pipeline. `parent` is the digest of the batch before, None for the first.

    Of the keys themselves, the audit compares those with `h(key) div L mod key_sample = 0`: all keys if it is 1.
    """

    FORMAT: ClassVar[str] = "coset.plan/1"

    pipeline: str
    batch: int
    parent: str | None
    planner: str
    streams: tuple[PlannedStream, ...]
    stages: tuple[Stage, ...]
    groups: tuple[TaskGroup, ...]
    key_sample: int

    @cached_property
    def _streams(self) -> dict[str, PlannedStream]:
        return {stream.name: stream for stream in self.streams}

    def stream(self, name: str) -> PlannedStream:
        """The stream of that name."""
        return self._streams[name]

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def ranges(self) -> tuple[OffsetRange, ...]:
        """What the batch reads, each stream partition once."""
        return tuple(stream.range(partition.partition) for stream in self.streams for partition in stream.partitions)

    @property
    def records(self) -> int:
        """How many records the batch reads, each counted once."""
        return sum(len(each) for each in self.ranges())

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All result tables."""
        return tuple(write for stage in self.stages for write in stage.writes)
