"""Own tasks: keys that make a task heavy, each given a task for itself, beside those of the other keys.

The cosets of a stage are cut finer. The task that had a hot key owns all of its coset but the residue of that key,
which a further task owns. The others own what they did and read what they did, and state stays where it lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm

from partitioning.cosets import MOST_READS
from partitioning.errors import Finding
from partitioning.hashes import hash_of, read_key
from partitioning.model.placement import OPAQUE, Placement
from partitioning.model.plan import Stage, TaskRef
from partitioning.model.private import MASK
from partitioning.model.reasons import AsAsked, GcdOf, OwnTask, OwnTasks
from partitioning.model.stage_inputs import StateInput
from partitioning.model.statistics import TaskFigures
from partitioning.model.streams import Stream
from partitioning.planning.stages.draft import StageContext, StageDraft
from partitioning.planning.stages.hot_ranges import LEAST, SHARE
from partitioning.planning.stages.record_ranges import Shared, kept_together, least_share, shares, splits_joins
from partitioning.planning.task_coverage import listed, unsound
from partitioning.values import replace

# A stage gives no more keys a task of their own, so that each coset keeps residues for its other keys.
MOST_KEYS = 8
# Into how many parts a coset is cut: the fewest that tell the hot keys apart. A part of the others stays with each.
_PARTS = 16, 32, 64, 128, 256
# Cosets are not cut finer than that.
_FINEST = 1 << 16


class OwnTasksOf:
    """Which keys of each stage are hot, by the last batch's figures; those that had a task of their own may keep it.

    If they are to be `split`, keys of joins are given as many tasks as they need, where that is right.
    """

    def __init__(self, context: StageContext, streams: Mapping[str, Stream], *, split: bool) -> None:
        self._split = split
        self._streams = streams
        self._planned = context.planned
        self._before = {stage.name: stage for stage in context.published.stages} if context.published else {}
        figures = context.statistics
        self._figures: Mapping[TaskRef, TaskFigures] = figures.tasks if figures else {}
        self._found = figures.keys if figures else ()
        # The records of each key of a stage, by input.
        self._keys: dict[str, dict[str, Counter[str]]] = {}
        for key in self._found:
            # Private keys look alike.
            if key.key != MASK:
                self._keys.setdefault(key.task.stage, {}).setdefault(key.key, Counter()).update(key.records)

    def given(self, draft: StageDraft, placements: Sequence[Placement], leaving: Collection[str]) -> StageDraft:
        """The stage with a task for each hot key; as it is if it has none, or cannot tell it from others by its hash.

        Its inputs lie by these placements. The rows of the streams and steps in `leaving` go elsewhere.
        """
        count, why = draft.count, draft.count.why
        if not isinstance(why, AsAsked | GcdOf) or not self._may_have_any(draft):
            return draft
        if len(by := {(lies.hash, lies.key_format) for lies in placements if lies.key}) != 1:
            return draft
        ((placed_by, key_format),) = by
        if placed_by == OPAQUE:
            return draft
        taken, records = self._taken(draft.name), self._keys.get(draft.name, {})
        weights = {key: some.total() for key, some in records.items()}
        had = {own.key: own.tasks for own in self._own_before(draft.name)}
        hot = hot_keys_of(weights, taken, count.cosets, list(had))
        h = hash_of(placed_by, f"placement of {draft.name}")
        hashes = {key: h(read_key(key, key_format), key_format) for key in hot}
        partitions = [lies.partitions or count.cosets for lies in placements if lies.key]
        most = max(
            self._heaviest(draft, hot, taken - sum(weights[key] for key in hot)), least_share(taken, count.cosets)
        )
        sides = self._sides(draft, leaving)
        shared = {
            key: share
            for key in hot
            if (share := self._shared(records[key], sides, most, hashes[key], before=had.get(key, 1) > 1))
        }
        together = next((share.together for share in shared.values() if share.together), "")
        ranged = {key: (share.ranged, share.tasks) for key, share in shared.items() if not share.together}
        # A residue of a stream that is read in ranges lies in one of its partitions.
        base = lcm(count.cosets, *(self._streams[name].partitions for name, _ in ranged.values()))
        cosets = _finer(hashes.values(), base, [*partitions, *self._left_in(draft)])
        if not hot or cosets is None:
            return draft
        residues = {key: hashes[key] % cosets for key in hot}
        # Of keys that no such number tells apart, the first has the task.
        first = {residue: key for key, residue in reversed(residues.items())}
        own = tuple(
            OwnTask(key, residue, round(100 * Fraction(weights[key], taken)), *ranged.get(key, ()))
            for key, residue in residues.items()
            if first[residue] == key
        )
        apart = OwnTasks(why, own, together)
        return replace(draft, count=replace(count, cosets=cosets, why=apart), owners=apart.owners(cosets))

    def _may_have_any(self, draft: StageDraft) -> bool:
        """Whether keys of a stage may have tasks of their own."""
        asked = splits_joins(draft.steps) if self._split else any(step.keyed for step in draft.steps)
        return asked and draft.choice.partitioner is None and draft.count.keeps_keys

    def _sides(self, draft: StageDraft, leaving: Collection[str]) -> Mapping[str, str]:
        """The streams that a stage reads, each with what keeps the records of a key together where it is read in
        ranges; none if keys are not to be split."""
        if not self._split:
            return {}
        streams = [self._streams[name] for name in draft.streams]
        given = [name for name in (*draft.streams, *(step.name for step in draft.steps)) if name in leaving]
        return {name: kept_together(name, streams, draft.steps, given) for name in draft.streams}

    def _heaviest(self, draft: StageDraft, hot: Collection[str], others: int) -> Fraction:
        """What a task with no hot key has at most; a mean one if the last batch had another number of them. In all they
        have so many records of `others`."""
        mean = Fraction(others, draft.count.cosets)
        before = self._before.get(draft.name)
        if before is None or before.by_scheme != draft.count.cosets:
            return mean
        took = {task: self._figures[task].own for task in self._figures if task.stage == draft.name}
        for key in self._found:
            if key.key in hot and key.task in took:
                took[key.task] -= key.total
        return max([mean, *(Fraction(took.get(TaskRef(draft.name, task), 0)) for task in range(draft.count.cosets))])

    def _shared(
        self, records: Mapping[str, int], sides: Mapping[str, str], most: Fraction, h: int, *, before: bool
    ) -> Shared | None:
        """How several tasks share a key with so many records of each side, so that none has more than `most`; None if
        one is enough."""
        if not sides:
            return None
        ranged = max(sides, key=lambda name: records.get(name, 0))
        in_ranges = records.get(ranged, 0)
        tasks = shares(in_ranges, sum(records.values()) - in_ranges, most, before=before)
        partition = self._planned[ranged][h % self._streams[ranged].partitions]
        tasks = min(tasks, partition.end - partition.start)
        return Shared(ranged, tasks, sides[ranged]) if tasks > 1 else None

    def _taken(self, stage: str) -> int:
        """The records with a key that the tasks of a stage took, each once."""
        before = self._before.get(stage)
        keyless = {task.task for task in before.tasks if task.null_keys} if before else set()
        took = sum(took.own for task, took in self._figures.items() if task.stage == stage and task.task not in keyless)
        records = self._keys.get(stage, {})
        copied = (
            (own.tasks - 1) * count
            for own in self._own_before(stage)
            for read, count in records.get(own.key, {}).items()
            if read != own.ranged
        )
        return took - sum(copied)

    def _own_before(self, stage: str) -> Sequence[OwnTask]:
        """The keys that had a task of their own, or several."""
        why = self._before[stage].why if stage in self._before else None
        return why.keys if isinstance(why, OwnTasks) else ()

    def _left_in(self, draft: StageDraft) -> Iterator[int]:
        """The partitions in which the last batch left state of these steps."""
        steps = {step.name for step in draft.steps}
        for step in (step for stage in self._before.values() for step in stage.steps if step.name in steps):
            if step.state and step.state.placement:
                yield step.state.placement.partitions


def hot_keys_of(weights: Mapping[str, int], taken: int, tasks: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """The keys to give a task of their own: each has at least half of what a task without such keys has, of `taken`
    records in so many `tasks`. One that had a task `before` keeps it down to a quarter, and comes first.

    >>> hot_keys_of({"bot": 40_000, "ann": 3_000}, 100_000, 8), hot_keys_of({"bot": 2_000}, 100_000, 8, ["bot"])
    (('bot',), ())
    >>> hot_keys_of({"bot": 5_000}, 100_000, 8), hot_keys_of({"bot": 5_000}, 100_000, 8, ["bot"])
    ((), ('bot',))
    """
    by_weight = sorted((key for key in weights if weights[key] >= LEAST), key=lambda key: (-weights[key], key))
    hot = by_weight[: min(MOST_KEYS, tasks)] if tasks > 1 else []
    while True:
        light = Fraction(taken - sum(weights[key] for key in hot), tasks)
        heavy = [key for key in hot if weights[key] >= SHARE[key in before] * light]
        if heavy == hot:
            return (*(key for key in before if key in hot), *(key for key in hot if key not in before))
        hot = heavy


def _finer(hashes: Collection[int], cosets: int, partitions: Sequence[int]) -> int | None:
    """The cosets that tell keys with these hashes apart, as far as that is possible; None if there would be too many.

    >>> _finer([5, 5 + 2 * 16], 2, [2]), _finer([5], 1_000_000, [1_000_000])
    (64, None)
    """
    found = None
    for finer in (cosets * parts for parts in _PARTS):
        if finer > _FINEST or sum(lcm(count, finer) for count in partitions) > MOST_READS:
            break
        found = finer
        if len({h % finer for h in hashes}) == len(hashes):
            break
    return found


def own_task_findings(stage: Stage) -> Iterator[Finding]:
    """Findings for a stage that gives keys a task of their own: each must own the residue of its key, and no other."""
    if not isinstance(why := stage.why, OwnTasks):
        return
    where = f"stage {stage.name}"
    owned = [task.owns for task in stage.undivided if not task.null_keys]
    if stage.cosets % why.of.cosets or owned != list(why.owners(stage.cosets)):
        what = f"{listed(own.key for own in why.keys)} should have a task each, and the others {why.of.cosets}"
        yield unsound(what, where, tasks=len(owned))
    for own in why.keys:
        for read in (read for read in stage.inputs if read.placement.key and not isinstance(read, StateInput)):
            key_format = read.placement.key_format
            h = hash_of(read.placement.hash, where)(read_key(own.key, key_format), key_format)
            if h % stage.cosets != own.residue:
                what = f"{own.key} of {read.name} has h(key) mod {stage.cosets} = {h % stage.cosets}, not {own.residue}"
                yield unsound(what, where, read=read.name)
