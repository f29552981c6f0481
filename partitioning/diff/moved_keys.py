"""Handovers: which keys of stream partitions and state another task takes than before, how many, and why.

A key with hash h belongs to the task that owns `h mod L`. A residue mod L and one mod L' share keys if and only
if they agree modulo gcd(L, L'); so shares are counted from L + L' residues, never over the lcm(L, L') that there
may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

from partitioning.explain.reason_texts import move_reason
from partitioning.model.plan import Plan, Stage, TaskMove, TaskRef
from partitioning.model.reasons import GroupCount
from partitioning.model.stage_inputs import StateInput, StreamInput
from partitioning.model.takes import Task
from partitioning.values import Value

Labelled = tuple[int, Sequence[tuple[int, int]]]


def kept(before: Labelled, now: Labelled) -> Fraction:
    """The share of keys whose label stays. Each side has a modulus L and its residues, each with a label.

    From 4 tasks to 8 the keys of half the residues modulo 8 stay where they are:

    >>> kept((4, [(t, t) for t in range(4)]), (8, [(t, t) for t in range(8)]))
    Fraction(1, 2)
    """
    step = gcd(before[0], now[0])
    old, new = (Counter((residue % step, label) for residue, label in side[1]) for side in (before, now))
    old_sizes, new_sizes = (Counter(residue % step for residue, _ in side[1]) for side in (before, now))
    stays = sum(count * new[labelled] for labelled, count in old.items())
    return Fraction(stays, sum(count * new_sizes[residue] for residue, count in old_sizes.items()))


class Side(Value, frozen=True, dict=True):
    """A stage of one of the plans, and the group of each of its plan's tasks."""

    plan: Plan
    stage: Stage
    group: Mapping[TaskRef, int]

    @cached_property
    def takers(self) -> tuple[Task, ...]:
        """The tasks that take keys, those that share a hot key as one."""
        return tuple(task for task in self.stage.undivided if not task.null_keys)

    @cached_property
    def keyed(self) -> bool:
        return any(task.owns for task in self.takers)

    @cached_property
    def in_ranges(self) -> bool:
        """Whether tasks read ranges of partitions, so that a key may be several tasks'."""
        return any(task.span is not None for task in self.takers)

    @cached_property
    def owners(self) -> dict[int, int]:
        """The task of each residue modulo L, in a stage that keeps keys together."""
        return {residue: task.task for task in self.takers for residue in task.owns}

    @cached_property
    def groups(self) -> dict[int, int]:
        return {task.task: self.group[TaskRef(self.stage.name, task.task)] for task in self.takers}

    def readers(self, name: str) -> dict[int, int]:
        """The last task that reads each partition of an input: the only one where keys are not kept together."""
        return {number: task.task for task in self.takers for number in task.reads.get(name, ())}

    def held(self, partition: int, partitions: int, labels: Mapping[int, int], readers: Mapping[int, int]) -> Labelled:
        """The residues that the keys of a partition have, each with the label of its task."""
        if not self.keyed:
            return 1, [(0, labels[readers[partition]])]
        modulus = self.stage.cosets
        step = gcd(partitions, modulus)
        return modulus, [(residue, labels[self.owners[residue]]) for residue in range(partition % step, modulus, step)]


class Portion(Value, frozen=True):
    """How much of something: `some` of `all`; not `exact` where only a share of the keys is known."""

    some: int
    all: int
    exact: bool = True


class Handover(Value, frozen=True):
    """What of a stream, or of a step's state, other tasks or groups of a stage read now than before.

    `keys` is the share of keys with another task, `groups` the share with another task group, if all hashes are equally
    likely. `tasks` counts the tasks that take over keys. For a stream, `partitions` counts the partitions with such
    keys; `records` and `bytes` are what the new plan reads of these keys.
    """

    stage: str
    name: str
    state: bool
    keys: Fraction
    groups: Fraction
    tasks: Portion
    why: str
    partitions: Portion | None = None
    records: Portion | None = None
    bytes: Portion | None = None


def handovers(before: Plan, now: Plan) -> tuple[Handover, ...]:
    """What changes hands from one plan to a later one, in the order of the plan. Keys that stay are left out.

    A task continues the task of its stage with the same number or, if the number of cosets stays, the task with which
    it shares most cosets. So tasks that only got other numbers hand over nothing.
    """
    groups, readers, moves = (before.group_of, now.group_of), _readers(before), dict[str, dict[str, None]]()
    for move in moved(before, now):
        moves.setdefault(move.task.stage, {})[move_reason(move.why)] = None
    handed_over = list[Handover]()
    # A stage without steps only moves records on: it has no keys of its own.
    for stage in (stage for stage in now.stages if stage.steps):
        for read in stage.inputs:
            if not isinstance(read, StreamInput | StateInput):
                continue
            # If several stages read the stream, the one with the same name is preferred.
            for old in sorted(readers[type(read)].get(read.step, ()), key=lambda old: old.name != stage.name)[:1]:
                sides = Side(before, old, groups[0]), Side(now, stage, groups[1])
                pair = _Pair(*sides, tuple(moves.get(stage.name, ())))
                handed_over.extend(pair.stream(read) if isinstance(read, StreamInput) else pair.state(read))
    return tuple(handed_over)


def moved(before: Plan, now: Plan) -> tuple[TaskMove, ...]:
    """The tasks that own, or read, what they did before and are in another task group now, by stage and number.

    The reasons are the new plan's own, as far as it moved them from the same group.
    """
    groups = before.group_of, now.group_of
    reasons = {(move.task, move.before): move.why for move in now.moves}
    unexplained = GroupCount(len(before.groups), len(now.groups))
    stages = {stage.name: stage for stage in before.stages}
    moves = []
    for stage in now.stages:
        old = stages.get(stage.name)
        if old is None or old.cosets != stage.cosets:
            continue
        groups_before = {_identity(task): groups[0][TaskRef(old.name, task.task)] for task in old.tasks}
        for task in stage.tasks:
            ref = TaskRef(stage.name, task.task)
            group, number = groups_before.get(_identity(task)), groups[1][ref]
            if group is not None and group != number:
                moves.append(TaskMove(ref, group, number, reasons.get((ref, group), unexplained)))
    return tuple(moves)


class _Pair(Value, frozen=True, dict=True):
    """A stage before and now. `moves` are the reasons why its tasks that continue changed their task group."""

    old: Side
    new: Side
    moves: tuple[str, ...]

    def stream(self, read: StreamInput) -> Iterator[Handover]:
        """The handover of a stream, if there is one."""
        old, new = self.old.readers(read.name), self.new.readers(read.name)
        numbers = [number for number in sorted(new) if self.old.keyed or number in old]
        # Where tasks take ranges, no task owns a key: there is nothing to hand over.
        if self._same or not numbers or self.old.in_ranges or self.new.in_ranges:
            return
        count = read.placement.partitions
        keys, groups = ([1 - stays for stays in self._kept(kind, numbers, count, (old, new))] for kind in self._labels)
        shares = keys if any(keys) else groups
        if any(shares):
            planned = [self.new.plan.stream(read.name).partitions[number] for number in numbers]
            yield self._handover(
                read,
                sum(keys, Fraction()) / len(numbers),
                sum(groups, Fraction()) / len(numbers),
                self._owning_anew if self.old.keyed and self.new.keyed else self._reading_anew(read, old),
                partitions=Portion(sum(share > 0 for share in shares), len(numbers)),
                records=_part(shares, [partition.records for partition in planned]),
                bytes=_part(shares, [partition.bytes for partition in planned]),
            )

    def state(self, read: StateInput) -> Iterator[Handover]:
        """The handover of a step's state, if there is one."""
        keys, groups = (1 - self._kept(kind, [0], 1, ({}, {}))[0] for kind in self._labels)
        if keys or groups:
            yield self._handover(read, keys, groups, self._owning_anew)

    def _handover(
        self, read: StreamInput | StateInput, keys: Fraction, groups: Fraction, tasks: Portion, **parts: Portion
    ) -> Handover:
        why = "; ".join(self._reasons() if keys else self.moves) or self._owners_changed()
        is_state = isinstance(read, StateInput)
        return Handover(self.new.stage.name, read.step, is_state, keys, groups, tasks, why, **parts)

    @cached_property
    def _same(self) -> bool:
        old, new = self.old.stage, self.new.stage
        same = (old.name, old.cosets, old.tasks) == (new.name, new.cosets, new.tasks)
        return same and self.old.groups == self.new.groups

    @cached_property
    def _labels(self) -> tuple[tuple[Mapping[int, int], Mapping[int, int]], ...]:
        """Labels of the tasks of both plans, equal for a task and the one that continues it; and the labels of their
        task groups."""
        own = {task.task: task.task for task in self.old.takers}
        return (own, self._continued), (self.old.groups, self.new.groups)

    @cached_property
    def _continued(self) -> dict[int, int]:
        """For each new task the old task that it continues; a number below 0 if there is none."""
        old, new = self.old, self.new
        fresh = {task.task: -1 - task.task for task in new.takers}
        if old.stage.name != new.stage.name:
            return fresh
        if not (old.keyed and new.keyed and old.stage.cosets == new.stage.cosets):
            return {task.task: task.task for task in new.takers}
        continued = set[int]()
        shared = Counter((old.owners[residue], task) for residue, task in new.owners.items())
        for (before, now), _ in sorted(shared.items(), key=lambda pair: (-pair[1], pair[0][0] != pair[0][1], pair[0])):
            if fresh[now] < 0 and before not in continued:
                fresh[now] = before
                continued.add(before)
        return fresh

    def _kept(
        self,
        labels: tuple[Mapping[int, int], Mapping[int, int]],
        numbers: Sequence[int],
        count: int,
        readers: tuple[Mapping[int, int], Mapping[int, int]],
    ) -> list[Fraction]:
        """For each of the partitions the share of its keys whose label stays."""
        stays = dict[int, Fraction]()
        # In stages that keep keys together, partitions share their residues with others.
        period = gcd(count, lcm(self.old.stage.cosets, self.new.stage.cosets))
        same = period if self.old.keyed and self.new.keyed else max(numbers) + 1
        for number in numbers:
            if number % same not in stays:
                old = self.old.held(number, count, labels[0], readers[0])
                stays[number % same] = kept(old, self.new.held(number, count, labels[1], readers[1]))
        return [stays[number % same] for number in numbers]

    @cached_property
    def _owning_anew(self) -> Portion:
        """How many tasks own residues that were another's, if keys are kept together before and now."""
        old, new = self.old, self.new
        step = gcd(old.stage.cosets, new.stage.cosets)
        held = Counter((task, residue % step) for residue, task in old.owners.items())
        whole = old.stage.cosets // step
        own = ((self._continued[task.task], task.owns) for task in new.takers)
        taking = sum(any(held[label, residue % step] < whole for residue in owned) for label, owned in own)
        return Portion(taking, len(new.takers))

    def _reading_anew(self, read: StreamInput, old_readers: Mapping[int, int]) -> Portion:
        """How many tasks read partitions of a stream with keys that were another's."""
        labels, count = self._labels[0][0], read.placement.partitions
        taking = 0
        for task in self.new.takers:
            numbers = [number for number in task.reads.get(read.name, ()) if self.old.keyed or number in old_readers]
            before = {label for number in numbers for _, label in self.old.held(number, count, labels, old_readers)[1]}
            taking += not before <= {self._continued[task.task]}
        return Portion(taking, len(self.new.takers))

    def _reasons(self) -> Iterator[str]:
        """Why keys have another task."""
        old, new = self.old.stage, self.new.stage
        if old.name != new.name:
            yield f"read by stage {old.name} before"
        if old.scheme != new.scheme:
            yield f"scheme {old.scheme} → {new.scheme}"
        if old.partitioner != new.partitioner:
            yield f"partitioner {old.partitioner or 'none'} → {new.partitioner or 'none'}"
        before = {read.name: read.partitions for read in old.streams}
        for read in new.streams:
            if before.get(read.name, read.partitions) != read.partitions:
                yield f"partitions of {read.name} {before[read.name]} → {read.partitions}"

    def _owners_changed(self) -> str:
        """Why keys have another task, if nothing that was asked for has changed."""
        old, new = self.old.stage.cosets, self.new.stage.cosets
        return f"{old} cosets → {new}" if old != new else "the cosets were assigned anew"


def _identity(task: Task) -> object:
    """What makes a task the same in two plans: the residues it owns, or what it reads if it owns none."""
    return task.null_keys, task.owns, task.span, () if task.owns else tuple(sorted(task.reads.items()))


def _readers(plan: Plan) -> Mapping[type, Mapping[str, list[Stage]]]:
    """The stages that read each stream, and those that have each step and so leave its state."""
    streams, states = dict[str, list[Stage]](), dict[str, list[Stage]]()
    for stage in plan.stages:
        for read in stage.streams:
            streams.setdefault(read.name, []).append(stage)
        for step in stage.steps:
            states.setdefault(step.name, []).append(stage)
    return {StreamInput: streams, StateInput: states}


def _part(shares: Sequence[Fraction], counts: Sequence[int]) -> Portion:
    moving = sum((share * count for share, count in zip(shares, counts, strict=True)), Fraction())
    exact = all(share in (0, 1) or not count for share, count in zip(shares, counts, strict=True))
    return Portion(round(moving), sum(counts), exact)
