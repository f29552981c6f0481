"""Cosets of stages: how many each stage has and which task owns them, in wave order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from partitioning.authoring.settings import PartitionerRef
from partitioning.errors import Finding, Refused, noting
from partitioning.kinds import Kind
from partitioning.model.placement import KeyHash, Placement, each_of
from partitioning.model.reasons import AllTogether, AsAsked, Dealt, GcdOf, InRanges, OnePerPartition
from partitioning.model.schemes import COGROUP, MAX, HotKeys, Scheme, SchemeKind, tasks
from partitioning.model.statistics import TaskFigures
from partitioning.numbers import TASKS
from partitioning.planning.changeover import Changeover
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.planning.partitioners.partitioners import Shares, assign_shares
from partitioning.planning.stages.draft import (
    ReadKind,
    StageContext,
    StageDraft,
    StageRead,
    TaskCount,
    derive_hashes,
    keys_of,
)
from partitioning.planning.stages.own_tasks import OwnTasksOf
from partitioning.planning.stages.record_ranges import count_ranges
from partitioning.planning.stages.scheme_choice import default_scheme
from partitioning.planning.stages.waves import Waves
from partitioning.values import replace

# An exchange that several stages read has as many partitions as serve them all, if that is no more than so many
# times what the largest needs.
MOST_OF_COMMON = 4


def with_cosets(
    waves: Waves, context: StageContext, changed: Mapping[str, Changeover], hot_keys: HotKeys, findings: list[Finding]
) -> tuple[StageDraft, ...]:
    """The drafts with their cosets. A stage may depend on the cosets of the stages before it.

    `changed` has the streams whose partition count changed. Refusals go to `findings`; the stage then has one coset.
    """
    counter = _Counter(waves, context, changed, hot_keys, findings)
    return tuple(map(counter.counted, waves.drafts))


class _Counter:
    def __init__(
        self,
        waves: Waves,
        context: StageContext,
        changed: Mapping[str, Changeover],
        hot_keys: HotKeys,
        findings: list[Finding],
    ) -> None:
        self._keys = keys_of(waves.graph)
        self._streams = {stream.name: stream for stream in waves.graph.streams}
        self._cuts = waves.cuts
        self._batch = context.batch
        self._planned = context.planned
        self._changed = changed
        split = hot_keys is HotKeys.SPLIT
        self._own_tasks = None if hot_keys is HotKeys.LEAVE else OwnTasksOf(context, self._streams, split=split)
        self._findings = findings
        self._homes: dict[str, StageDraft] = {}
        self._leaving = {read.step for draft in waves.drafts for read in draft.reads if read.kind is ReadKind.RESULT}
        moved = (cut.source for cut in waves.cuts.values())
        self._given = {*self._leaving, *moved, *(write.step for write in waves.graph.writes)}
        self._before = {stage.name: stage for stage in context.published.stages} if context.published else {}
        self._figures: dict[str, dict[int, TaskFigures]] = {}
        for task, figures in (context.statistics.tasks if context.statistics else {}).items():
            self._figures.setdefault(task.stage, {})[task.task] = figures

    def counted(self, draft: StageDraft) -> StageDraft:
        keeps = any(step.keyed or step.name in self._leaving for step in draft.steps)
        placements = {read: self._placement(read) for read in draft.reads}
        feeding = [self._homes[read.step].natural for read in draft.reads if read.kind is not ReadKind.STREAM]
        scheme = draft.choice.scheme or default_scheme(draft.choice, keeps_keys=keeps)
        count, shares = _in_place_of_refused(draft, scheme), None
        with noting(self._findings):
            count = self._by_scheme(draft, scheme, placements, feeding)
        if draft.choice.partitioner is not None:
            with noting(self._findings):
                shares = self._shares(draft, draft.choice.partitioner, count, placements)
        several = any(len(each_of(placement.hash)) > 1 for placement in placements.values())
        recounted = shares is not None and shares.cosets != count.cosets
        if shares is not None:
            count = replace(count, cosets=shares.cosets)
        elif not keeps and draft.choice.partitioner is None:
            count = dealt(count, [placement.partitions or count.cosets for placement in placements.values()], several)
        counted = replace(
            draft,
            count=count,
            owners=shares.owners if shares else _own_residues(count),
            cooling=shares.cooling if shares else (),
            keeps=keeps,
            key_hashes=derive_hashes(
                draft.steps, {read.step: _taken_by(placement) for read, placement in placements.items()}, self._keys
            ),
            wants=count.cosets if recounted or count.scheme.keeps_keys else max(feeding, default=1),
            natural=count.cosets if recounted else count.natural,
        )
        if self._own_tasks and not self._changed.keys() & set(draft.streams):
            counted = self._own_tasks.given(counted, list(placements.values()), self._given)
        for name in (*(step.name for step in draft.steps), *draft.streams):
            self._homes.setdefault(name, counted)
        return counted

    def _placement(self, read: StageRead) -> Placement:
        """Where the records of a read lie. An exchange without a count of its own has 0 partitions for now."""
        match read.kind:
            case ReadKind.RESULT:
                return self._homes[read.step].left(read.step)
            case ReadKind.EXCHANGE:
                cut = self._cuts[read.name]
                return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or 0)
            case ReadKind.STREAM:
                stream = self._streams[read.step]
                return Placement(stream.key, stream.key_format, stream.hash, stream.partitions)

    def _by_scheme(
        self, draft: StageDraft, scheme: Scheme, placements: Mapping[StageRead, Placement], feeding: Sequence[int]
    ) -> TaskCount:
        if not scheme.keeps_keys:
            counts = [placement.partitions or None for placement in placements.values()]
        else:
            counts = [self._partitions(read, placement) for read, placement in placements.items() if placement.key]
        count = task_count(draft, scheme, counts, feeding)
        if count.scheme.most_records is not None:
            return count_ranges(draft, count, [self._streams[name] for name in draft.streams], self._planned)
        together = ", ".join(step.name for step in draft.steps if step.keyed)
        if count.scheme == MAX and (together or draft.choice.partitioner):
            what = f"but {together} needs them together" if together else "so a partitioner has none to assign"
            raise Refused.of(
                Kind.SCHEME,
                f"scheme max keeps no keys together, {what}",
                f"stage {draft.name}",
                "use cogroup, elastic(F) or tasks(L)",
                stage=draft.name,
                steps=together,
            )
        return count

    def _partitions(self, read: StageRead, placement: Placement) -> int | None:
        """The partition count that a stage goes by. A result counts without the factor of the stage that left it."""
        if read.kind is ReadKind.RESULT:
            return self._homes[read.step].natural
        over = self._changed.get(read.step) if read.kind is ReadKind.STREAM else None
        return over.count if over else placement.partitions or None

    def _shares(
        self,
        draft: StageDraft,
        partitioner: PartitionerRef | str,
        count: TaskCount,
        placements: Mapping[StageRead, Placement],
    ) -> Shares:
        if count.gathered:
            what = f"its records are all needed together, so {partitioner} has nothing to assign"
            then = "leave the partitioner out"
            raise Refused.of(Kind.SCHEME, what, f"stage {draft.name}", then, partitioner=partitioner)
        return assign_shares(
            partitioner,
            draft.name,
            cosets=count.cosets,
            inputs=tuple(
                replace(placement, partitions=placement.partitions or count.cosets) for placement in placements.values()
            ),
            previous=self._before.get(draft.name),
            figures=self._figures.get(draft.name, {}),
            batch=self._batch,
        )


def _taken_by(placement: Placement) -> KeyHash | None:
    """How the keys lie that tasks take of what is placed so."""
    return placement.key_hash and placement.key_hash.settled


def _in_place_of_refused(draft: StageDraft, scheme: Scheme) -> TaskCount:
    """One coset, so that the stages behind can be looked at too."""
    together = tuple(step.name for step in draft.steps if gathers(step))
    return TaskCount(scheme, 1, AllTogether(together) if together else OnePerPartition())


def _own_residues(count: TaskCount) -> tuple[tuple[int, ...], ...] | None:
    """Task t owns the residue t."""
    return tuple((residue,) for residue in range(count.cosets)) if count.keeps_keys else None


def task_count(draft: StageDraft, scheme: Scheme, counts: Sequence[int | None], feeding: Sequence[int]) -> TaskCount:
    """L of a stage whose inputs have these partition counts.

    A count of None stands for an exchange, which gets as many partitions as its reader wants. A stage that reads only
    exchanges goes by the largest stage that feeds it, whose natural counts are `feeding` (Kafka Streams' rule): a
    factor multiplies the tasks of its own stage, and of no later one. Under `records`, L is the number of partitions,
    which `count_ranges` then splits. A stage with a step that needs all records together has one coset, whatever is
    chosen for all stages.

    Raises Refused if more than one task was chosen for such a stage by name, or if there are more tasks than a plan can
    have.
    """
    if together := tuple(step.name for step in draft.steps if gathers(step)):
        return _gathered(draft, together, scheme)
    base = max(feeding, default=1)
    if not scheme.keeps_keys:
        cosets = scheme.tasks([base if count is None else count for count in counts])
        most = scheme.most_records
        return TaskCount(scheme, cosets, OnePerPartition() if most is None else InRanges(cosets, most))
    fixed = tuple(count for count in counts if count is not None)
    cosets = scheme.tasks(fixed or [base])
    if scheme.number is not None:
        TASKS.check(cosets, f"scheme {scheme} of stage {draft.name}")
    asked = scheme.kind is SchemeKind.TASKS
    return TaskCount(scheme, cosets, AsAsked(cosets) if asked else GcdOf(fixed, cosets))


def dealt(count: TaskCount, partitions: Sequence[int], scattered: bool) -> TaskCount:
    """The count of a stage that keeps no keys together, and reads inputs of so many `partitions`.

    Where tasks would have to leave out each other's keys, as fewer than partitions may have to, and all if keys of an
    input are `scattered`, they read whole partitions instead.
    """
    total = sum(partitions)
    fewer = count.cosets < total and any(each % count.cosets for each in partitions)
    if not count.keeps_keys or not (scattered or fewer):
        return count
    cosets = min(count.cosets, total)
    return replace(count, cosets=cosets, why=Dealt(total, cosets))


def _gathered(draft: StageDraft, steps: tuple[str, ...], scheme: Scheme) -> TaskCount:
    if draft.choice.named and scheme not in (COGROUP, tasks(1)):
        who = f"{' and '.join(steps)} {'needs' if len(steps) == 1 else 'need'}"
        what = f"{who} all records in one task, but the scheme is {scheme}"
        raise Refused.of(Kind.SCHEME, what, f"stage {draft.name}", "leave the scheme out", scheme=scheme)
    return TaskCount(tasks(1), 1, AllTogether(steps))


def exchange_count(wanted: Sequence[int]) -> int:
    """How many partitions an exchange has whose readers want these numbers.

    >>> exchange_count([6]), exchange_count([4, 6]), exchange_count([7, 9])
    (6, 12, 9)
    """
    common = lcm(*wanted)
    return common if common <= MOST_OF_COMMON * max(wanted) else max(wanted)
