"""The plan document: all that a batch will read, run and write, fixed before anything runs.

Everything that shows a plan and everything that runs it reads this one document.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from msgspec import UNSET, UnsetType, field

from partitioning.model.allowance import Allowance
from partitioning.model.ends import Ends, Forgotten, StreamProgress
from partitioning.model.graph import Step, Write
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.placement import Placement
from partitioning.model.reasons import CountChange, ExchangeReason, MoveReason, TaskCountReason, Unifying
from partitioning.model.schemes import Scheme
from partitioning.model.streams import Column, InputFile, NullKeys, Stream
from partitioning.model.tasks import Task
from partitioning.values import Document, Value, replace


class PlannedPartition(Value, frozen=True, gc=False, omit_defaults=True):
    """A stream partition in this batch: read [start, end); `committed` is where the last batch ended.

    `files` are those that hold the range, pinned by size and etag. `bytes` is the range's share of them. So many
    offsets of the range are `missing`: no file holds them, and `model.gaps` says why. Of a topic that is read from its
    broker, `epoch` is the leader epoch (KIP-101) that its log had reached when this was planned, -1 if nobody said.
    """

    partition: int
    beginning: int
    committed: int
    start: int
    end: int
    bytes: int
    files: tuple[InputFile, ...]
    missing: int = 0
    epoch: int = -1

    @property
    def records(self) -> int:
        """How many records the range holds."""
        return self.end - self.start - self.missing

    def within(self, span: Span) -> PlannedPartition:
        """What a task reads of it that has these offsets only: their files, and their share of the bytes.

        Where a file with missing offsets is cut, it is only known about how many of them are the task's.
        """
        files = tuple(file for file in self.files if max(file.start, span.start) < min(file.end, span.end))
        size = sum(file.share(span.start, span.end) for file in files)
        held = sum(file.held(span.start, span.end) for file in files) if self.missing else span.end - span.start
        missing = span.end - span.start - held
        return replace(self, start=span.start, end=span.end, bytes=size, files=files, missing=missing)


class PlannedStream(Value, frozen=True, omit_defaults=True, dict=True):
    """A stream in this batch: its declaration, its columns, and every partition by number.

    New files are `lacking` some of the columns, which are read as null; `required` ones no file allows to be null.
    `topic` is the id of a topic that is read from its broker.
    """

    declared: Stream
    columns: tuple[Column, ...]
    partitions: Sequence[PlannedPartition]
    lacking: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    topic: str = ""

    @property
    def name(self) -> str:
        return self.declared.name

    @cached_property
    def records(self) -> int:
        """How many records the batch reads of it."""
        return sum(partition.records for partition in self.partitions)

    def records_of(self, only: Sequence[int] | None) -> int:
        """How many records the batch reads of `only` these partitions, or of all."""
        return self.records if only is None else sum(self.partitions[number].records for number in only)

    def range(self, partition: int) -> OffsetRange:
        """What the batch reads of a partition."""
        planned = self.partitions[partition]
        return OffsetRange(StreamPartition(self.name, partition), planned.start, planned.end)

    def read_by(self, task: Task) -> tuple[PlannedPartition, ...]:
        """The partitions that a task reads, each with what the task reads of it."""
        partitions = (self.partitions[number] for number in task.reads.get(self.name, ()))
        return tuple(partitions if task.span is None else (planned.within(task.span) for planned in partitions))


class PlannedWrite(Value, frozen=True, omit_defaults=True):
    """A result table of a stage, its columns included (without `_batch` and `_task`).

    An upserted table is written `anew` as a whole if its rows cannot stay where they are, or are not there yet.
    """

    declared: Write
    columns: tuple[Column, ...]
    anew: bool = False


class StreamInput(Value, frozen=True, tag="stream", tag_field="kind"):
    """A stream, or `only` some of its `partitions`, if others are moved first.

    `placement` says where its records lie: by the gcd of both partition counts, if the count has changed.
    """

    name: str
    placement: Placement
    partitions: int
    null_keys: NullKeys
    only: tuple[int, ...] | None = None

    @property
    def step(self) -> str:
        """The stream whose records it holds."""
        return self.name

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions that there are to read, ascending."""
        return range(self.partitions) if self.only is None else self.only


class _Left(Value, frozen=True, omit_defaults=True):
    """What tasks left of the stream or step `step`, in the partitions into which `placement` puts it."""

    name: str
    step: str
    placement: Placement

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions that there are to read, ascending."""
        return range(self.placement.partitions)


class ExchangeInput(_Left, frozen=True, tag="exchange", tag_field="kind"):
    """What moved through an exchange: these columns of the stream or step `step`, where `placement` puts records.

    Each partition has so many `unifiers`, which read it apart from each other: what is for unifier u of partition p of
    n lies under the number u * n + p.
    """

    columns: tuple[Column, ...] = ()
    unifiers: int = 1

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers that there are to read, ascending."""
        return range(self.placement.partitions * self.unifiers)


class ResultInput(_Left, frozen=True, tag="result", tag_field="kind"):
    """What a step of an earlier stage left where it was made: these columns of it."""

    columns: tuple[Column, ...] = ()


class StateRun(Value, frozen=True, omit_defaults=True, gc=False):
    """What a `batch` left of a state: so many `records`, in the files that its verdict names, of this digest.

    `latest` is the greatest `@time` of the rows. Of a run that is `merged`, what is still needed is left anew by this
    batch, and later ones do not read it.
    """

    batch: int
    verdict: str
    records: int
    latest: int | None = None
    merged: bool = False


class StateInput(_Left, frozen=True, tag="state", tag_field="kind"):
    """What one of the stage's own steps kept, up to an earlier `batch`: these columns, left in `runs`, newest first."""

    batch: int
    columns: tuple[Column, ...] = ()
    runs: tuple[StateRun, ...] = ()

    @property
    def records(self) -> int:
        """How many records all runs hold."""
        return sum(run.records for run in self.runs)

    @property
    def unmerged(self) -> int:
        """The newest batch whose run is not merged, -1 if all are: what was left since is left anew."""
        return max((run.batch for run in self.runs if not run.merged), default=-1)

    @property
    def latest(self) -> int | None:
        """The greatest `@time` that the step has kept."""
        return max((run.latest for run in self.runs if run.latest is not None), default=None)


# What a stage reads; `name` is how tasks name it, `step` the stream or step whose records it holds.
Input = StreamInput | ExchangeInput | ResultInput | StateInput


class Exchange(Value, frozen=True):
    """Records moved to a new placement between two stages (Kafka Streams: repartition topic).

    `source` is the stream or step whose records move, written by the tasks of `stage`; of a stream whose
    partition count changed, `only` some partitions move. Partition p of it holds the records that
    `placement` puts there. `wanted_by` are the steps that need it. With `unifiers`, what is written of a partition
    passes that many levels of the step `combine` before it is read as a whole, each with so many unifiers for the
    partition: those of the first read this exchange, each the parts of neighbouring writers, as evenly as can be. They
    are the tasks of a stage, and write what they combine in place of `source`, in the exchange that the next level
    reads. `moves` and `spares` are the records that pass through it and those that a shuffle of all would have moved
    too, by the last batch's counts; None where they are not known.
    """

    name: str
    source: str
    stage: str
    placement: Placement
    wanted_by: tuple[str, ...]
    why: ExchangeReason
    only: tuple[int, ...] | None = None
    combine: str | None = None
    unifiers: tuple[int, ...] = ()
    moves: int | None = None
    spares: int | None = None

    @property
    def readers(self) -> int:
        """How many unifiers read each partition of it apart from each other; 1 if it is read as a whole."""
        return self.unifiers[0] if self.unifiers else 1


class Stage(Value, frozen=True):
    """A part of the pipeline that runs without moving records between tasks.

    `cosets` is L; `tasks` has one more if some stream gives records without a key their own task.
    `why` says how L came about, and `given` whether its scheme was given. A `partitioner`, by its import path, may
    have dealt the cosets to fewer tasks; `cooling` says for each task until which batch it is left as it is. Stages
    of a later `wave` read what those of earlier waves left. `changes` are those of the streams that it reads.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    writes: tuple[PlannedWrite, ...]
    scheme: Scheme
    cosets: int
    why: TaskCountReason
    given: bool
    tasks: tuple[Task, ...]
    partitioner: str | None = None
    cooling: tuple[int, ...] = ()
    wave: int = 0
    changes: tuple[CountChange, ...] = ()

    @property
    def streams(self) -> tuple[StreamInput, ...]:
        """The streams it reads, in declared order."""
        return tuple(read for read in self.inputs if isinstance(read, StreamInput))

    @property
    def unifies(self) -> bool:
        """Whether its tasks are the unifiers of a level."""
        return isinstance(self.why, Unifying)

    @property
    def keeps_keys(self) -> bool:
        """Whether each key is one task's."""
        return any(task.owns for task in self.tasks)


class TaskRef(Value, frozen=True, order=True):
    """A task of a stage; prints as `flights+planes/3`."""

    stage: str
    task: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.task}"


class TaskGroup(Value, frozen=True):
    """The tasks that one Spark job runs, all of one wave, and how many bytes and records they read.

    `location` is the place where it should run: that of the group's last run, None if there is none.
    """

    group: int
    tasks: tuple[TaskRef, ...]
    bytes: int
    records: int
    location: str | None = None
    wave: int = 0


class TaskMove(Value, frozen=True):
    """A task that runs in another group than in the last plan, and why."""

    task: TaskRef
    before: int
    now: int
    why: MoveReason


class Plan(Document, frozen=True):
    """One batch of a pipeline. `parent` is the digest of the batch before, None for the first.

    Of the keys themselves, the audit compares those with `h(key) div L mod key_sample = 0`: all keys if it is 1.
    `starts` names the stream partitions, as `flights-3`, whose first batch this is and which were asked to begin
    later than their first offset. `losses` are offsets that are gone unread and that somebody accepted to lose; plans
    without any do not say it. `remembered` is what earlier batches read and this one does not go on from; plans that
    were made before plans had it do not say it. `forgotten` is what somebody asked to be forgotten before this batch.
    Of the steps that keep something, those in `anew` begin with nothing and those in `on` go on although what is
    before them changed, as somebody asked for by name. `day_end` is the end of the day (UTC) on which it was planned,
    in microseconds, if a step goes by times. `allowance` says how many rows it may take away, if not as many as any.
    `held` are the rows that result tables had when it was planned.
    """

    FORMAT: ClassVar[str] = "coset.plan/3"

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
    starts: dict[str, int] = field(default_factory=dict)
    losses: tuple[OffsetRange, ...] | UnsetType = UNSET
    remembered: tuple[StreamProgress, ...] | UnsetType = UNSET
    forgotten: tuple[Forgotten, ...] | UnsetType = UNSET
    anew: tuple[str, ...] | UnsetType = UNSET
    on: tuple[str, ...] | UnsetType = UNSET
    day_end: int | UnsetType = UNSET
    allowance: Allowance | UnsetType = UNSET
    held: dict[str, int] | UnsetType = UNSET

    @cached_property
    def ends(self) -> Ends:
        """Up to where all was read after this batch; of a plan that remembers nothing only what it reads itself."""
        before = Ends(self.batch, self.remembered if isinstance(self.remembered, tuple) else ())
        return replace(before.then(Ends.by(self.batch, self.streams)), pipeline=self.pipeline)

    @property
    def forgot(self) -> tuple[Forgotten, ...]:
        """What this batch does not know any more because somebody asked for it."""
        return self.forgotten if isinstance(self.forgotten, tuple) else ()

    @property
    def allowed(self) -> Allowance:
        """How many rows this batch may take away."""
        return self.allowance if isinstance(self.allowance, Allowance) else Allowance()

    @property
    def rows_held(self) -> dict[str, int]:
        """The rows that result tables had when this was planned."""
        return self.held if isinstance(self.held, dict) else {}

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """The offsets that this batch gives up for lost."""
        return self.losses if isinstance(self.losses, tuple) else ()

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

    def task(self, ref: TaskRef) -> Task:
        """A task of a stage."""
        return self.stage(ref.stage).tasks[ref.task]

    def ranges(self) -> tuple[OffsetRange, ...]:
        """What the batch reads, each stream partition once."""
        return tuple(stream.range(partition.partition) for stream in self.streams for partition in stream.partitions)

    @property
    def records(self) -> int:
        """How many records the batch reads, each counted once."""
        return sum(stream.records for stream in self.streams)

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All result tables."""
        return tuple(write for stage in self.stages for write in stage.writes)

    @property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the task groups of each wave; those of one run before those of the next."""
        last = max((group.wave for group in self.groups), default=-1)
        return tuple(tuple(group.group for group in self.groups if group.wave == wave) for wave in range(last + 1))
