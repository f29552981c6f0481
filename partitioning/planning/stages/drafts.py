"""Drafts: the cosets of each stage, in wave order, since a stage may go by those of the stages before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ParamSpec, TypeVar

from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.placement import MURMUR2, Placement
from partitioning.model.plan import Plan, PlannedPartition, PlannedStream
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.reasons import AllTogether, OnePerPartition
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.planning.changeover import Changeover
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.planning.partitioners.partitioners import Shares, dealt
from partitioning.planning.stages.derived_hashes import KeyHashes, derive_hashes, keys_of
from partitioning.planning.stages.record_ranges import unfit
from partitioning.planning.stages.scheme_choice import Choice, default_scheme
from partitioning.planning.stages.step_states import StateSnapshot
from partitioning.planning.stages.task_counts import TaskCount, task_count, with_ranges
from partitioning.planning.stages.waves import ReadKind, StageOutline, StageRead, Waves
from partitioning.values import Value, replace

P = ParamSpec("P")
T = TypeVar("T")


class Draft(Value, frozen=True):
    """A part with its cosets and the residues that its tasks own, None if each partition has a task.

    `keeps` says whether equal keys have to be kept together, `key_hashes` how the records of what it reads and of its
    steps lie. `wants` is how many partitions it wants of an exchange. Later stages go by its `natural` count.
    """

    part: StageOutline
    choice: Choice
    task_count: TaskCount
    owners: tuple[tuple[int, ...], ...] | None
    cooling: tuple[int, ...]
    keeps: bool
    key_hashes: Mapping[str, KeyHashes]
    wants: int
    natural: int

    @property
    def cosets(self) -> int:
        return self.task_count.cosets

    def left(self, step: str) -> Placement:
        """How what a step leaves lies: partition r holds the rows of coset r, under `max` those of task r."""
        key, key_format = next((own.key, own.key_format) for own in self.part.steps if own.name == step)
        if self.task_count.gathered:
            return Placement(key, key_format, MURMUR2, 1)
        (key_hash, *others) = self.key_hashes[step]
        if key_hash is None or others or not self.task_count.scheme.keeps_keys:
            return Placement("", key_format, MURMUR2, self.cosets)
        return Placement(key, key_hash.key_format, key_hash.hash, self.cosets)


class StageContext(Value, frozen=True):
    """What stages are cut from, beside pipeline and settings: what the batch reads of each stream, and what is known of
    the batches before.

    `published` is the last published plan, `kept` the state that it left, but for that of steps that begin `anew`.
    `ends` say up to where streams were read. The batch is of what is `named` so, the pipeline itself without it;
    `day_end` is the end of the day, in microseconds.
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

    @property
    def planned(self) -> Mapping[str, Sequence[PlannedPartition]]:
        """What the batch reads of each stream."""
        return {stream.name: stream.partitions for stream in self.streams}


NOTHING_BEFORE = StageContext()


def drafts(
    waves: Waves,
    chosen: Sequence[Choice],
    context: StageContext,
    changed: Mapping[str, Changeover],
    findings: list[Finding],
) -> tuple[Draft, ...]:
    """A draft of each part, where these partition counts have `changed`.

    What is refused goes to `findings`, and the part then has one coset.
    """
    drafter = _Drafter(waves, context, changed, findings)
    return tuple(drafter.draft(part, choice) for part, choice in zip(waves.parts, chosen, strict=True))


class _Drafter:
    def __init__(
        self, waves: Waves, context: StageContext, changed: Mapping[str, Changeover], findings: list[Finding]
    ) -> None:
        self._keys = keys_of(waves.graph)
        self._streams = {stream.name: stream for stream in waves.graph.streams}
        self._moved = waves.moved
        self._batch = context.batch
        self._planned = context.planned
        self._changed = changed
        self._findings = findings
        self._homes: dict[str, Draft] = {}
        self._leaving = {read.step for part in waves.parts for read in part.reads if read.kind is ReadKind.RESULT}
        self._before = {stage.name: stage for stage in context.published.stages} if context.published else {}
        self._figures: dict[str, dict[int, TaskFigures]] = {}
        for task, figures in (context.statistics.tasks if context.statistics else {}).items():
            self._figures.setdefault(task.stage, {})[task.task] = figures

    def draft(self, part: StageOutline, choice: Choice) -> Draft:
        keeps = any(step.keyed or step.name in self._leaving for step in part.steps)
        lying = {read: self._lying(read) for read in part.reads}
        feeding = [self._homes[read.step].natural for read in part.reads if read.kind is not ReadKind.STREAM]
        scheme = choice.scheme or default_scheme(choice, keeps_keys=keeps)
        counted = self._taken(self._task_count, part, choice, scheme, lying, feeding) or _refused(part, scheme)
        shares = self._taken(self._dealt, part, choice, counted, lying) if choice.partitioner else None
        count = replace(counted, cosets=shares.cosets) if shares else counted
        recounted = count != counted
        draft = Draft(
            part,
            choice,
            count,
            owners=shares.owners if shares else _own_residues(count),
            cooling=shares.cooling if shares else (),
            keeps=keeps,
            key_hashes=derive_hashes(
                part.steps, {read.step: placement.key_hash for read, placement in lying.items()}, self._keys
            ),
            wants=count.cosets if recounted or count.scheme.keeps_keys else max(feeding, default=1),
            natural=count.cosets if recounted else count.natural,
        )
        streams = (read.step for read in part.reads if read.kind is ReadKind.STREAM)
        for name in (*(step.name for step in part.steps), *streams):
            self._homes.setdefault(name, draft)
        return draft

    def _lying(self, read: StageRead) -> Placement:
        """Where what a part reads lies; an exchange without a count of its own lies in 0 partitions for now."""
        match read.kind:
            case ReadKind.RESULT:
                return self._homes[read.step].left(read.step)
            case ReadKind.EXCHANGE:
                cut = self._moved[read.name]
                return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or 0)
            case ReadKind.STREAM:
                stream = self._streams[read.step]
                return Placement(stream.key, stream.key_format, stream.hash, stream.partitions)

    def _task_count(
        self,
        part: StageOutline,
        choice: Choice,
        scheme: Scheme,
        lying: Mapping[StageRead, Placement],
        feeding: Sequence[int],
    ) -> TaskCount:
        if not scheme.keeps_keys:
            counts = [placement.partitions or None for placement in lying.values()]
        else:
            counts = [self._count(read, placement) for read, placement in lying.items() if placement.key]
        count = task_count(part, scheme, counts, feeding, named=choice.named)
        if count.scheme.most_records is not None:
            return self._in_ranges(part, choice, count)
        together = ", ".join(step.name for step in part.steps if step.keyed)
        if count.scheme == MAX and (together or choice.partitioner):
            what = f"but {together} needs them together" if together else "so a partitioner has none to deal"
            raise Refused(
                Finding(
                    Kind.SCHEME,
                    f"scheme max keeps no keys together, {what}",
                    f"stage {part.name}",
                    "use cogroup, elastic(F) or tasks(L)",
                    about(stage=part.name, steps=together),
                )
            )
        return count

    def _in_ranges(self, part: StageOutline, choice: Choice, count: TaskCount) -> TaskCount:
        """The number of tasks, once the streams that the part reads are dealt in ranges."""
        streams = [self._streams[read.step] for read in part.reads if read.kind is ReadKind.STREAM]
        if findings := tuple(unfit(part, choice, streams)):
            raise Refused(*findings)
        return with_ranges(count, [part for stream in streams for part in self._planned[stream.name]])

    def _count(self, read: StageRead, lying: Placement) -> int | None:
        """The partition count that a part goes by: of a result that without the factor of the stage that left it."""
        if read.kind is ReadKind.RESULT:
            return self._homes[read.step].natural
        over = self._changed.get(read.step) if read.kind is ReadKind.STREAM else None
        return over.count if over else lying.partitions or None

    def _dealt(
        self, part: StageOutline, choice: Choice, count: TaskCount, lying: Mapping[StageRead, Placement]
    ) -> Shares:
        if count.gathered:
            what = f"its records are all needed together, so {choice.partitioner} has nothing to deal"
            raise Refused(
                Finding(
                    Kind.SCHEME,
                    what,
                    f"stage {part.name}",
                    "leave the partitioner out",
                    about(partitioner=choice.partitioner),
                )
            )
        assert choice.partitioner is not None
        return dealt(
            choice.partitioner,
            part.name,
            cosets=count.cosets,
            inputs=tuple(
                replace(placement, partitions=placement.partitions or count.cosets) for placement in lying.values()
            ),
            previous=self._before.get(part.name),
            figures=self._figures.get(part.name, {}),
            batch=self._batch,
        )

    def _taken(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        """What is made; None, and the findings kept, if that is refused."""
        try:
            return make(*arguments, **named)
        except Refused as refusal:
            self._findings.extend(refusal.findings)
            return None


def _refused(part: StageOutline, scheme: Scheme) -> TaskCount:
    """What stands for the number of tasks of a part where that was refused."""
    together = tuple(step.name for step in part.steps if gathers(step))
    return TaskCount(scheme, 1, AllTogether(together) if together else OnePerPartition())


def _own_residues(count: TaskCount) -> tuple[tuple[int, ...], ...] | None:
    """Task t owns the residue t."""
    return tuple((residue,) for residue in range(count.cosets)) if count.scheme.keeps_keys else None
