"""Own tasks: keys that make a task heavy, each given a task for itself, beside those of the other keys.

The cosets of a stage are cut finer. The task that had a hot key owns all of its coset but the residue of that key,
which a further task owns. The others own what they did and read what they did, and state stays where it lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm

from partitioning.cosets.assignment import MOST_READS
from partitioning.errors import Finding
from partitioning.hashes import hash_of, read_key
from partitioning.model.placement import OPAQUE, Placement
from partitioning.model.plan import Stage, StateInput, TaskRef
from partitioning.model.private import MASK
from partitioning.model.reasons import AsAsked, GcdOf, OwnTask, OwnTasks
from partitioning.model.statistics import TaskFigures
from partitioning.planning.stages.context import StageContext
from partitioning.planning.stages.draft import StageDraft
from partitioning.planning.stages.split_partitions import LEAST, SHARE
from partitioning.planning.task_coverage import listed, unsound
from partitioning.values import replace

# A stage gives no more keys a task of their own, so that each coset keeps residues for its other keys.
MOST_KEYS = 8
# Into how many parts a coset is cut: the fewest that tell the hot keys apart. A part of the others stays with each.
_PARTS = 16, 32, 64, 128, 256
# Cosets are not cut finer than that.
_FINEST = 1 << 16


class OwnTasksOf:
    """Which keys of each stage are hot, by the last batch's figures; those that had a task of their own may keep it."""

    def __init__(self, context: StageContext) -> None:
        self._before = {stage.name: stage for stage in context.published.stages} if context.published else {}
        figures = context.statistics
        self._figures: Mapping[TaskRef, TaskFigures] = figures.tasks if figures else {}
        self._keys: dict[str, Counter[str]] = {}
        for key in figures.keys if figures else ():
            # Private keys look alike.
            if key.key != MASK:
                self._keys.setdefault(key.task.stage, Counter())[key.key] += key.total

    def given(self, draft: StageDraft, placements: Sequence[Placement]) -> StageDraft:
        """The stage with a task for each hot key; as it is if it has none, or cannot tell it from others by its hash.

        Its inputs lie by these placements.
        """
        count, why = draft.count, draft.count.why
        keyed = any(step.keyed for step in draft.steps)
        if not keyed or draft.choice.partitioner or not count.keeps_keys or not isinstance(why, AsAsked | GcdOf):
            return draft
        if len(by := {(lies.hash, lies.key_format) for lies in placements if lies.key}) != 1:
            return draft
        ((placed_by, key_format),) = by
        if placed_by == OPAQUE:
            return draft
        taken, weights = self._taken(draft.name), self._keys.get(draft.name, Counter())
        hot = hot_keys_of(weights, taken, count.cosets, self._had(draft.name))
        h = hash_of(placed_by, f"placement of {draft.name}")
        hashes = {key: h(read_key(key, key_format), key_format) for key in hot}
        partitions = [lies.partitions or count.cosets for lies in placements if lies.key]
        cosets = _finer(hashes.values(), count.cosets, [*partitions, *self._left_in(draft)])
        if not hot or cosets is None:
            return draft
        residues = {key: hashes[key] % cosets for key in hot}
        # Of keys that no such number tells apart, the first has the task.
        first = {residue: key for key, residue in reversed(residues.items())}
        own = tuple(
            OwnTask(key, residue, round(100 * Fraction(weights[key], taken)))
            for key, residue in residues.items()
            if first[residue] == key
        )
        apart = OwnTasks(why, own)
        return replace(draft, count=replace(count, cosets=cosets, why=apart), owners=apart.owners(cosets))

    def _taken(self, stage: str) -> int:
        """The records with a key that the tasks of a stage took."""
        before = self._before.get(stage)
        keyless = {task.task for task in before.tasks if task.null_keys} if before else set()
        return sum(took.own for task, took in self._figures.items() if task.stage == stage and task.task not in keyless)

    def _had(self, stage: str) -> list[str]:
        """The keys that had a task of their own."""
        why = self._before[stage].why if stage in self._before else None
        return [own.key for own in why.keys] if isinstance(why, OwnTasks) else []

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
    owned = [task.owns for task in stage.tasks if not task.null_keys]
    if stage.cosets % why.of.cosets or owned != list(why.owners(stage.cosets)):
        yield unsound(
            f"{listed(own.key for own in why.keys)} should have a task each, and the others {why.of.cosets}",
            where,
            tasks=len(owned),
        )
    for own in why.keys:
        for read in (read for read in stage.inputs if read.placement.key and not isinstance(read, StateInput)):
            key_format = read.placement.key_format
            h = hash_of(read.placement.hash, where)(read_key(own.key, key_format), key_format)
            if h % stage.cosets != own.residue:
                yield unsound(
                    f"{own.key} of {read.name} has h(key) mod {stage.cosets} = {h % stage.cosets}, not {own.residue}",
                    where,
                    read=read.name,
                )
