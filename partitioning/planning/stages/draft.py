"""The draft of a stage: each pass of planning adds what it decides, until the stage is complete."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from partitioning.authoring.settings import PartitionerRef
from partitioning.model.graph import Step
from partitioning.model.placement import MURMUR2, Placement
from partitioning.model.plan import PlannedWrite, Stage
from partitioning.model.reasons import (
    AllTogether,
    CountChange,
    Dealt,
    InRanges,
    OnePerPartition,
    OwnTasks,
    TaskCountReason,
)
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.stage_inputs import Input
from partitioning.model.takes import Task
from partitioning.planning.stages.derived_hashes import KeyHashes
from partitioning.values import Value


class ReadKind(Enum):
    """What a stage reads: a stream, an exchange, or what a step of an earlier stage left."""

    STREAM = auto()
    EXCHANGE = auto()
    RESULT = auto()


class StageRead(Value, frozen=True):
    """What a stage reads: `name` of a kind, holding the records of the stream or step `step`."""

    name: str
    kind: ReadKind
    step: str


class Choice(Value, frozen=True):
    """The scheme and partitioner that a user chose for a stage. `named` if the scheme is for this stage alone."""

    scheme: Scheme | None = None
    named: bool = False
    partitioner: PartitionerRef | str | None = None


class TaskCount(Value, frozen=True):
    """L of a stage, and why; `natural` is L without the factor of an `elastic` scheme, or the ranges of `records`.

    In a `gathered` stage some step needs all records in one task.
    """

    scheme: Scheme
    cosets: int
    why: TaskCountReason

    @property
    def natural(self) -> int:
        if isinstance(self.why, InRanges):
            return self.why.partitions
        return max(1, self.cosets // self.scheme.factor)

    @property
    def by_scheme(self) -> int:
        """L before hot keys were given tasks of their own."""
        return self.why.of.cosets if isinstance(self.why, OwnTasks) else self.cosets

    @property
    def gathered(self) -> bool:
        return isinstance(self.why, AllTogether)

    @property
    def keeps_keys(self) -> bool:
        """Whether each key has exactly one task. It has not where tasks have whole partitions, or ranges of them."""
        return self.scheme.keeps_keys and not isinstance(self.why, Dealt)


class StageDraft(Value, frozen=True):
    """A stage while it is planned. Each pass of planning fills in its fields.

    `waves` gives `wave`, `steps` and `reads`; `scheme_choice` gives `choice`. `stage_cosets` gives the `count`; the
    residues that the tasks own (`owners`, None if each partition has a task); whether equal keys must stay together
    (`keeps`); the hashes that place the records of each relation (`key_hashes`); how many partitions the stage `wants`
    of an exchange; and the `natural` count, which later stages use. `inputs` gives the inputs and changes, `stages` the
    tasks and tables.
    """

    wave: int
    reads: tuple[StageRead, ...]
    steps: tuple[Step, ...]
    choice: Choice = Choice()
    count: TaskCount = TaskCount(MAX, 1, OnePerPartition())
    owners: tuple[tuple[int, ...], ...] | None = None
    cooling: tuple[int, ...] = ()
    keeps: bool = False
    key_hashes: Mapping[str, KeyHashes] = {}
    wants: int = 1
    natural: int = 1
    inputs: tuple[Input, ...] = ()
    changes: tuple[CountChange, ...] = ()
    tasks: tuple[Task, ...] = ()
    writes: tuple[PlannedWrite, ...] = ()

    @property
    def name(self) -> str:
        """What it reads, so that steps added elsewhere do not change the name."""
        return "+".join(read.name for read in self.reads)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(read.name for read in self.reads if read.kind is ReadKind.STREAM)

    @property
    def cosets(self) -> int:
        return self.count.cosets

    def left(self, step: str) -> Placement:
        """Where the rows that a step leaves lie: partition r holds those of coset r, under `max` those of task r. A hot
        key with its own task moves nothing."""
        key, key_format = next((own.key, own.key_format) for own in self.steps if own.name == step)
        if self.count.gathered:
            return Placement(key, key_format, MURMUR2, 1)
        (key_hash, *others) = self.key_hashes[step]
        if key_hash is None or others or not self.count.keeps_keys:
            return Placement("", key_format, MURMUR2, self.count.by_scheme)
        return Placement(key, key_hash.key_format, key_hash.hash, self.count.by_scheme)

    def stage(self) -> Stage:
        """The stage, once all passes are done."""
        return Stage(
            self.name,
            self.inputs,
            self.steps,
            self.writes,
            self.count.scheme,
            self.cosets,
            self.count.why,
            self.choice.scheme is not None,
            self.tasks,
            None if self.choice.partitioner is None else str(self.choice.partitioner),
            self.cooling,
            self.wave,
            self.changes,
        )
