"""The plan: all that a batch reads, runs and writes, fixed before anything runs.

This one document is shown, stored, compared and run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import ClassVar

from msgspec import UNSET, field

from partitioning.imports import is_import_path
from partitioning.model.allowance import Allowance
from partitioning.model.gaps import Gap
from partitioning.model.graph import Graph, Step, Write
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import Placement
from partitioning.model.private import private_names
from partitioning.model.read_ends import Ends, Forgotten, StreamProgress
from partitioning.model.reasons import (
    CountChange,
    ExchangeReason,
    HotRanges,
    MoveReason,
    OwnTasks,
    TaskCountReason,
    Unifying,
    Unplaced,
)
from partitioning.model.schemes import Scheme
from partitioning.model.stage_inputs import Input, PlannedStream, StateInput, StreamInput
from partitioning.model.streams import Column
from partitioning.model.takes import Task
from partitioning.model.task_engine import UNNAMED, Engine
from partitioning.model.watermarks import Watermark
from partitioning.values import Document, Value, replace

# How many offenders a finding lists, unless settings say otherwise.
OFFENDERS_TOLD = 5


class PlannedWrite(Value, frozen=True, omit_defaults=True):
    """A result table that a stage writes, with its columns except `_batch` and `_task`.

    An upserted table is rewritten (`anew`) if its rows cannot stay where they are or do not exist yet. With `beside`,
    new rows are written beside those that they replace, except in the partitions that are `merged`: these are written
    again, without what is dead. In the others, rows of batches `since` one are written once more with the new ones, so
    that the files that have them go.
    """

    declared: Write
    columns: tuple[Column, ...]
    anew: bool = False
    beside: bool = False
    merged: tuple[int, ...] = ()
    since: int | None = None

    def is_beside(self, partition: int) -> bool:
        """Whether new rows of a partition are written beside those that they replace."""
        return self.beside and partition not in self.merged


class Exchange(Value, frozen=True):
    """Records moved to a new placement between two stages (Kafka Streams: repartition topic).

    `source` is the stream or step whose records move, written by the tasks of `stage`. `only` some partitions move if
    the stream's partition count changed. Partition p holds the records that `placement` puts there. The steps in
    `wanted_by` need it. With `unifiers`, a partition passes that many levels of the step `combine`, each with the given
    number of unifiers for a partition. The first level reads this exchange; each unifier reads the parts of
    neighbouring writers, as evenly as possible. Unifiers are tasks of a stage of their own; they write in place of
    `source` into the exchange that the next level reads. `moves` and `spares` are the records that pass through it and
    those that a full shuffle would move besides, estimated from the last batch; None if unknown.
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
    def of_part(self) -> bool:
        """Whether some records of a stream move and the others stay, of all partitions."""
        return isinstance(self.why, Unplaced) and self.why.of_part

    @property
    def readers(self) -> int:
        """How many unifiers share each partition; 1 if it is read whole."""
        return self.unifiers[0] if self.unifiers else 1


class Stage(Value, frozen=True):
    """A part of the pipeline that runs without moving records between tasks.

    `cosets` is L. `tasks` has one more task if a stream gives records without a key a task of their own. `why` says how
    L was chosen, `given` whether a user chose the scheme. A `partitioner` (import path) may assign the cosets to fewer
    tasks; `cooling` says until which batch each task is left as it is. Stages of a later `wave` read what earlier waves
    wrote. `changes` are the changed partition counts of its streams.
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
    def by_scheme(self) -> int:
        """How many cosets it has by its scheme. Those with hot keys may be cut finer, so that these have own tasks."""
        return self.why.of.cosets if isinstance(self.why, OwnTasks) else self.cosets

    @property
    def shares(self) -> tuple[range, ...]:
        """The numbers of the tasks that share each of its hot keys."""
        return tuple(self.why.shares) if isinstance(self.why, OwnTasks) else ()

    @property
    def undivided(self) -> tuple[Task, ...]:
        """Its tasks, those that share a hot key as one: the first of them, with all that they read together."""
        if not self.shares:
            return self.tasks
        first = {numbers[0] for numbers in self.shares}
        later = {number for numbers in self.shares for number in numbers[1:]}
        return tuple(
            replace(task, offsets=UNSET, ranged=UNSET) if task.task in first else task
            for task in self.tasks
            if task.task not in later
        )

    @property
    def unifies(self) -> bool:
        """Whether its tasks are the unifiers of a level."""
        return isinstance(self.why, Unifying)

    @property
    def repeats(self) -> bool:
        """Whether its steps are those of another stage, on a part of the records: unifiers, and ranges of hot keys."""
        return isinstance(self.why, Unifying | HotRanges)

    @property
    def keeps_keys(self) -> bool:
        """Whether each key has exactly one task."""
        return any(task.owns for task in self.tasks)


class TaskRef(Value, frozen=True, order=True):
    """A task of a stage; prints as `flights+planes/3`."""

    stage: str
    task: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.task}"


class TaskGroup(Value, frozen=True):
    """The tasks that one Spark job runs, all of one wave, with the bytes and records that they read.

    `location` is where it should run: where the group ran last, None if it did not.
    """

    group: int
    tasks: tuple[TaskRef, ...]
    bytes: int
    records: int
    location: str | None = None
    wave: int = 0

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The numbers of its tasks, by stage."""
        found: dict[str, list[int]] = {}
        for task in self.tasks:
            found.setdefault(task.stage, []).append(task.task)
        return found


class TaskMove(Value, frozen=True):
    """A task that changed its group since the last plan, and why."""

    task: TaskRef
    before: int
    now: int
    why: MoveReason


class Plan(Document, frozen=True, omit_defaults=True):
    """One batch of a pipeline. `parent` is the digest of the batch before, None for the first.

    The audit compares the keys with `h(key) div L mod key_sample = 0`: all keys if it is 1. `starts` names the stream
    partitions (`flights-3`) that this batch reads first, from a later offset than their first, as asked. `losses` are
    lost offsets that somebody accepted. `remembered` is what earlier batches read and this one does not continue.
    `forgotten` is what somebody asked to forget before this batch. Steps in `anew` begin without state, and steps in
    `on` continue although something before them changed, both as asked. `day_end` is the end of the day (UTC) of
    planning, in microseconds, if a step goes by times. `allowance` limits the rows that it may remove. `as_of` is the
    minute of planning, in microseconds, if an expectation or a watermark goes by it. `held` has the rows of result
    tables at planning. `watermarks` has those of streams that say when their records happened. `accepted` has the
    tables that go on, or begin, as asked although they may not be their queries, each with the first batch of which
    that is so. A finding lists so many `offenders`. `code` has a digest of the code of each function that the plan
    calls, by its import path, as it was at planning; it is noted, and decides nothing. `engine` is what its tasks run
    in.
    Plans made before a field existed, or without a value of it, omit it.
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
    grouper: str
    moves: tuple[TaskMove, ...]
    starts: dict[str, int]
    losses: tuple[OffsetRange, ...] = ()
    remembered: tuple[StreamProgress, ...] | None = None
    forgotten: tuple[Forgotten, ...] = ()
    anew: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    day_end: int | None = None
    allowance: Allowance = Allowance()
    held: dict[str, int] = field(default_factory=dict)
    as_of: int | None = None
    offenders: int = OFFENDERS_TOLD
    code: dict[str, str] = field(default_factory=dict)
    watermarks: tuple[Watermark, ...] = ()
    commits: dict[str, str] = field(default_factory=dict)
    engine: Engine | None = None
    accepted: dict[str, int] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The graph that it has in its stages."""
        return Graph(
            tuple(stream.declared for stream in self.streams),
            tuple(step for stage in self.stages if not stage.repeats for step in stage.steps),
            tuple(write.declared for write in self.writes()),
            {stream.name: stream.names for stream in self.streams},
            self.code,
        )

    @cached_property
    def ends(self) -> Ends:
        """The ends after this batch. A plan that remembers nothing gives only those of what it reads."""
        before = Ends(self.batch, self.remembered or ())
        return replace(before.then(Ends.by(self.batch, self.streams)), pipeline=self.pipeline)

    @property
    def as_asked(self) -> dict[str, str]:
        """A sentence on each of these tables that it writes."""
        since = sorted((table, batch) for table, batch in self.accepted.items() if table in self.tables)
        return {
            table: f"Table {table} may not be its query since batch {batch}, as asked for." for table, batch in since
        }

    @cached_property
    def gaps(self) -> Mapping[StreamPartition, tuple[Gap, ...]]:
        """The offsets without a record in what the batch reads, for each stream partition that has any."""
        found = (gap for stream in self.streams for gap in stream.gaps(self.losses))
        return {partition: tuple(some) for partition, some in groupby(found, lambda gap: gap.offsets.partition)}

    def watermark(self, stream: str) -> Watermark | None:
        """The watermark of a stream, if it says its times."""
        return next((each for each in self.watermarks if each.stream == stream), None)

    @property
    def planned_for(self) -> Engine:
        """The version of DuckDB that it was planned for."""
        return self.engine or Engine(UNNAMED)

    def code_shown(self, path: str) -> str | None:
        """What is noted of a function's code, in words: its digest, and the commit if it lies in a repository."""
        noted = self.code.get(path)
        return f"{noted}, commit {self.commits[path]}" if noted and path in self.commits else noted

    @property
    def functions(self) -> dict[str, tuple[str, ...]]:
        """The import paths of users' functions that the plan calls, each with what calls it."""
        used = dict[str, dict[str, None]]()
        for path, by in self._calls():
            if is_import_path(path) and not path.startswith("partitioning."):
                used.setdefault(path, {})[by] = None
        return {path: tuple(by) for path, by in used.items()}

    def _calls(self) -> Iterator[tuple[str, str]]:
        yield from ((stream.declared.hash, f"the keys of {stream.name}") for stream in self.streams)
        for stage in self.stages:
            for step in stage.steps:
                yield step.function or "", f"step {step.name}"
                yield step.hash, f"the keys of {step.name}"
            yield stage.partitioner or "", f"the cosets of stage {stage.name}"
        yield self.grouper, "task groups"

    @cached_property
    def private(self) -> frozenset[str]:
        """The names of all columns whose values are private, in small letters."""
        streams = (stream.declared for stream in self.streams)
        return private_names(streams, self.steps)

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

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all stages."""
        return tuple(step for stage in self.stages for step in stage.steps)

    @cached_property
    def states(self) -> tuple[StateInput, ...]:
        """All state that it goes on from."""
        return tuple(read for stage in self.stages for read in stage.inputs if isinstance(read, StateInput))

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All result tables."""
        return tuple(write for stage in self.stages for write in stage.writes)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of all result tables."""
        return tuple(write.declared.table for write in self.writes())

    @property
    def group_of(self) -> dict[TaskRef, int]:
        """The number of each task's group."""
        return {task: group.group for group in self.groups for task in group.tasks}

    @property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the task groups, wave by wave."""
        last = max((group.wave for group in self.groups), default=-1)
        return tuple(tuple(group.group for group in self.groups if group.wave == wave) for wave in range(last + 1))
