"""The plan document: all that a batch will read, run and write, fixed before anything runs.

Everything that shows a plan and everything that runs it reads this one document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from partitioning.cosets.assignment import assign
from partitioning.documents.document import COLUMNS, RULE
from partitioning.model.graph import Step, Write
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import Placement
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.model.tasks import Task

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
    partitions: tuple[PlannedPartition, ...] = field(metadata={COLUMNS: True})

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


STREAM, EXCHANGE, RESULT, STATE = "stream", "exchange", "result", "state"


@dataclass(frozen=True, slots=True)
class Input:
    """What a stage reads: a stream, an exchange, what a step of an earlier stage left where it was made (a
    result), or what one of its own steps left in an earlier batch (state).

    `name` is how tasks name what they read, `step` the stream or step whose records it holds. `placement`
    says where its records lie. Of a stream, `only` some partitions may be read so, if others are moved first.
    `batch` is the one that wrote the state.
    """

    name: str
    kind: str
    step: str
    placement: Placement
    only: tuple[int, ...] | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Records moved to a new placement between two stages (Kafka Streams: repartition topic).

    `source` is the stream or step whose records move, written by the tasks of `stage`; of a stream whose
    partition count changed, `only` some partitions move. Partition p of it holds the records that
    `placement` puts there. `wanted_by` are the steps that need it, `why` says so in a sentence. With
    `unifiers`, the parts that the tasks of `stage` write of a partition are combined by the step `combine`
    in levels: so many unifiers in each, each taking neighbouring parts, as evenly as can be. `moves` and
    `spares` are the records that pass through it and those that a shuffle of all would have moved too,
    by the last batch's counts; None where they are not known.
    """

    name: str
    source: str
    stage: str
    placement: Placement
    wanted_by: tuple[str, ...]
    why: str
    only: tuple[int, ...] | None = None
    combine: str | None = None
    unifiers: tuple[int, ...] = ()
    moves: int | None = None
    spares: int | None = None


def by_rule(stage: Mapping[str, Any]) -> tuple[Task, ...]:
    """The tasks that the coset rule gives, from a stage's other fields; a document stores what differs only."""
    counts = [(each.name, each.placement.partitions) for each in stage["inputs"]]
    return assign(counts, MAX if stage["scheme"] == str(MAX) else Scheme("tasks", stage["cosets"])).tasks


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the pipeline that runs without moving records between tasks.

    `cosets` is L; `tasks` has one more if some stream gives records without a key their own task.
    `why` says in a sentence how L came about. A `partitioner`, by its import path, may have dealt the
    cosets to fewer tasks; `cooling` says for each task until which batch it is left as it is. Stages of a
    later `wave` read what those of earlier waves left.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    writes: tuple[PlannedWrite, ...]
    scheme: str
    cosets: int
    why: str
    tasks: tuple[Task, ...] = field(metadata={RULE: by_rule})
    partitioner: str | None = None
    cooling: tuple[int, ...] = ()
    wave: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams it reads, in declared order."""
        return tuple(each.name for each in self.inputs if each.kind == STREAM)


@dataclass(frozen=True, order=True, slots=True)
class TaskRef:
    """A task of a stage; prints as `flights+planes/3`."""

    stage: str
    task: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.task}"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The tasks that one Spark job runs, all of one wave, and how many bytes and records they read.

    `location` is the place where it should run: that of the group's last run, None if there is none.
    """

    group: int
    tasks: tuple[TaskRef, ...]
    bytes: int
    records: int
    location: str | None = None
    wave: int = 0


@dataclass(frozen=True, slots=True)
class TaskMove:
    """A task that runs in another group than in the last plan; `why` gives the reason."""

    task: TaskRef
    before: int
    now: int
    why: str


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
    exchanges: tuple[Exchange, ...]
    stages: tuple[Stage, ...]
    groups: tuple[TaskGroup, ...]
    key_sample: int
    grouper: str = "balanced-sticky"
    moves: tuple[TaskMove, ...] = ()

    @cached_property
    def _streams(self) -> dict[str, PlannedStream]:
        return {stream.name: stream for stream in self.streams}

    def stream(self, name: str) -> PlannedStream:
        """The stream of that name."""
        return self._streams[name]

    @cached_property
    def _stages(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return self._stages[name]

    def ranges(self) -> tuple[OffsetRange, ...]:
        """What the batch reads, each stream partition once."""
        return tuple(stream.range(partition.partition) for stream in self.streams for partition in stream.partitions)

    @property
    def records(self) -> int:
        """How many records the batch reads, each counted once."""
        return sum(each.end - each.start for stream in self.streams for each in stream.partitions)

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All result tables."""
        return tuple(write for stage in self.stages for write in stage.writes)
