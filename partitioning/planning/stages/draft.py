"""The draft of a stage: each pass of planning adds what it decides, until the stage is complete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from partitioning.authoring.settings import PartitionerRef
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import MURMUR2, KeyHash, Placement
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.reasons import (
    AllTogether,
    CountChange,
    Dealt,
    InRanges,
    OnePerPartition,
    OwnTasks,
    TaskCountReason,
)
from partitioning.model.receipt import Role
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.stage_inputs import Input, PlannedPartition, PlannedStream
from partitioning.model.statistics import Statistics
from partitioning.model.table_parts import TablePart
from partitioning.model.takes import Task
from partitioning.model.verdict import Verdict
from partitioning.model.watermarks import LatestTimes
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, changes_keys
from partitioning.values import Value

# None among them stands for records that lie anywhere.
KeyHashes = frozenset[KeyHash | None]


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


class StateSnapshot(Value, frozen=True):
    """The state that a published batch left: its verdict's digest; records, greatest time and bytes, by name of the
    state; and the latest event times of its streams."""

    verdict: str
    records: Mapping[str, int]
    latest: Mapping[str, int]
    bytes: Mapping[str, int] = {}
    times: tuple[LatestTimes, ...] = ()

    @classmethod
    def by(cls, verdict: Verdict, digest: str) -> StateSnapshot:
        """The state that a verdict names."""
        records, latest, size = dict[str, int](), dict[str, int](), dict[str, int]()
        for artefact in verdict.artefacts:
            if artefact.role is Role.STATE:
                records[artefact.name] = records.get(artefact.name, 0) + artefact.records
                size[artefact.name] = size.get(artefact.name, 0) + sum(part.end - part.start for part in artefact.parts)
                if artefact.latest is not None:
                    latest[artefact.name] = max(latest.get(artefact.name, artefact.latest), artefact.latest)
        return cls(digest, records, latest, size, verdict.latest_times)


class StageContext(Value, frozen=True):
    """What stages are planned from, beside pipeline and settings.

    `streams` say what the batch reads. `published` is the last published plan, `kept` the state that it left; steps in
    `anew` begin without theirs. `ends` say how far streams were read. `named` is the owner of the batch, if not the
    pipeline. `day_end` is the end of the day, in microseconds. `parts` has the partitions of upserted tables, by table.
    """

    batch: int = 0
    streams: tuple[PlannedStream, ...] = ()
    published: Plan | None = None
    ends: Ends = NOTHING
    statistics: Statistics | None = None
    kept: StateSnapshot | None = None
    anew: Collection[str] = ()
    named: str | None = None
    day_end: int | None = None
    parts: Mapping[str, tuple[TablePart, ...]] = {}

    @property
    def records(self) -> int:
        """How many records the batch reads."""
        return sum(part.records for stream in self.streams for part in stream.partitions)

    @property
    def planned(self) -> Mapping[str, Sequence[PlannedPartition]]:
        """What the batch reads of each stream."""
        return {stream.name: stream.partitions for stream in self.streams}


NOTHING_BEFORE = StageContext()


def keys_of(graph: Graph) -> Mapping[str, DerivedPlacement]:
    """The key column of each stream and step."""
    streams = {stream.name: DerivedPlacement(stream.key, stream.key_format, ()) for stream in graph.streams}
    return streams | {step.name: DerivedPlacement(step.key, step.key_format, ()) for step in graph.steps}


def derive_hashes(
    steps: Sequence[Step], read: Mapping[str, KeyHash | None], keys: Mapping[str, DerivedPlacement]
) -> Mapping[str, KeyHashes]:
    """The hashes that place the records of each relation of a stage: first its inputs, then its steps."""
    lying: dict[str, KeyHashes] = {name: frozenset({key_hash}) for name, key_hash in read.items()}
    for step in steps:
        if changes_keys(step, keys):
            lying[step.name] = frozenset({None})
        else:
            lying[step.name] = _union(lying[name] for name in step.inputs)
    return lying


def apart(
    steps: Sequence[Step], lying: Mapping[str, KeyHashes], read: Mapping[str, Placement], where: str
) -> Iterator[Finding]:
    """Findings for keyed steps in which equal keys would not meet."""
    met = {step.name: _union(lying[name] for name in step.inputs) for step in steps if step.keyed}
    for name, key_hashes in met.items():
        if None in key_hashes:
            what = (
                f"{name} needs equal keys together, but records that it gets were given other keys, or were left by a "
                "stage of scheme max, and did not move"
            )
            then = "move them with .repartition() first, or give the stage that leaves them another scheme"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, name=name)
    if any(len(key_hashes - {None}) > 1 for key_hashes in met.values()):
        yield from _different(read, where)


def _union(several: Iterable[KeyHashes]) -> KeyHashes:
    return frozenset[KeyHash | None]().union(*several)


def _different(read: Mapping[str, Placement], where: str) -> Iterator[Finding]:
    for noun, values in (
        ("key formats", {name: placement.key_format for name, placement in read.items()}),
        ("placements", {name: placement.hash for name, placement in read.items()}),
    ):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value}" for name, value in values.items())
            what = f"streams that meet have different {noun} ({listed}); equal keys would not meet"
            then = "declare what their producers really use; a stream placed otherwise needs an exchange"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, listed=listed)
