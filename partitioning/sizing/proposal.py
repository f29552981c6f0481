"""Sizing: how many tasks a stage should have, and how many task groups a batch, by its sizes and the last batches."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction

from partitioning.authoring.settings import Settings
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import Unifying
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.schemes import tasks as scheme_of
from partitioning.model.stage_inputs import StateInput, StreamInput
from partitioning.model.statistics import Statistics, most_groups
from partitioning.numbers import BYTES, GROUPS, TASKS
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.sections import many, size
from partitioning.sizing.workload import LEFT, Load, Workload, traffic
from partitioning.values import Value, replace

# Whole partitions are preferred if they cost at most a quarter more. Within a quarter of the best counts as the best.
NEAR = Fraction(5, 4)


class Targets(Value, frozen=True):
    """How much work a task should have, and how readily the number of tasks may change.

    A task should have `bytes` of work on average, and at most `skew` times that. If `seconds` are given and the pace of
    the last batches is known, it should take no longer than that. A stage has `min_tasks` to
    `max_tasks` tasks. A task group has up to `group_tasks` tasks, and a wave `min_groups` to `max_groups` groups. A
    change must make tasks lighter, or fewer, by the factor `gain`, and comes at least `cooldown` batches after the last
    change.

    Raises Refused, with all findings, for targets that nothing can reach.
    """

    bytes: int = 128_000_000
    seconds: float | None = None
    skew: float = 2.0
    min_tasks: int = 1
    max_tasks: int = 1000
    group_tasks: int = 16
    min_groups: int = 1
    max_groups: int = 32
    gain: float = 1.25
    cooldown: int = 3

    def __post_init__(self) -> None:
        refuse(self._findings())

    def _findings(self) -> Iterator[Finding]:
        least = {"bytes": 1, "skew": 1, "min_tasks": 1, "group_tasks": 1, "min_groups": 1, "gain": 1, "cooldown": 0}
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                what = f"{name} is {getattr(self, name)}"
                yield Finding.of(Kind.ARGUMENT, what, "targets", f"use {lowest} or more", name=name)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            what = f"seconds is {self.seconds}"
            yield Finding.of(Kind.ARGUMENT, what, "targets", "use more than 0", seconds=self.seconds)
        for name, bound in (("bytes", BYTES), ("min_tasks", TASKS), ("max_tasks", TASKS), ("max_groups", GROUPS)):
            if (value := getattr(self, name)) > bound.most and (finding := bound.finding(value, f"{name} in targets")):
                yield finding
        for low, high in (("min_tasks", "max_tasks"), ("min_groups", "max_groups")):
            if getattr(self, low) > getattr(self, high):
                what = f"{low} is {getattr(self, low)}, {high} is {getattr(self, high)}"
                then = f"use a {high} of at least {low}"
                yield Finding.of(Kind.ARGUMENT, what, "targets", then, low=getattr(self, low), high=getattr(self, high))


class Sized(Value, frozen=True):
    """What is proposed for one stage: the scheme, how many tasks it has, how many there were, and why in a sentence.

    The scheme is None where the number of tasks is not for sizing to choose. `steps` are the stage's.
    """

    stage: str
    steps: tuple[str, ...]
    scheme: Scheme | None
    tasks: int
    before: int
    why: str


class Proposal(Value, frozen=True):
    """What is proposed for the next batch."""

    stages: tuple[Sized, ...]
    groups: int
    why: str

    def settings(self, base: Settings) -> Settings:
        """`base` with the proposed schemes and number of groups."""
        settings = replace(base, groups=self.groups)
        for sized in self.stages:
            if sized.scheme is not None:
                settings = with_scheme(settings, sized.stage, sized.steps, sized.scheme)
        return settings


def with_scheme(settings: Settings, stage: str, steps: Sequence[str], scheme: Scheme) -> Settings:
    """`settings` with another scheme for a stage, in place of what was set for it or for any of its steps.

    >>> from partitioning.model.schemes import elastic
    >>> before = Settings(schemes={"joined": elastic(2), "late": MAX})
    >>> {name: str(each) for name, each in with_scheme(before, "a+b", ["joined"], scheme_of(6)).schemes.items()}
    {'late': 'max', 'a+b': 'tasks(6)'}
    """
    others = {name: chosen for name, chosen in settings.schemes.items() if name != stage and name not in steps}
    return replace(settings, schemes={**others, stage: scheme})


def propose(plan: Plan, history: Sequence[Statistics], targets: Targets) -> Proposal:
    """The number of tasks of each stage, and of task groups, for the batch that `plan` would read.

    `history` has the last batches' figures, oldest first; it may be empty. The smallest number of tasks is taken
    whose work is within the targets, a quarter more if it divides every partition count, as then nothing has to be
    filtered. If none is, it is the smallest that comes within a quarter of the best there is. A number of tasks that
    the planner would refuse is never proposed.
    """
    stages = tuple(_stage(plan, stage, history, targets) for stage in plan.stages)
    groups, why = _groups(plan, stages, history, targets)
    return Proposal(stages, groups, why)


class _Candidate(Value, frozen=True):
    """A number of tasks, and what it costs: bytes of work, as the target counts them."""

    tasks: int
    scheme: Scheme
    load: Load
    filtered: bool
    cost: Fraction


def _stage(plan: Plan, stage: Stage, history: Sequence[Statistics], targets: Targets) -> Sized:
    steps = tuple(step.name for step in stage.steps)
    if fixed := _fixed(plan, stage):
        return Sized(stage.name, steps, None, len(stage.tasks), stage.by_scheme, fixed)
    workload = Workload.of(plan, stage)
    target, unit = _target(stage, history, targets)
    candidates = _candidates(workload, targets)
    best, why = _best(candidates, target, unit, targets)
    past = [batch.cosets[stage.name] for batch in history if stage.name in batch.cosets]
    before = past[-1] if past else stage.by_scheme
    present = next((candidate for candidate in candidates if candidate.tasks == before), None)
    if present is not None and present is not best:
        if (age := _age(past)) is not None and age < targets.cooldown:
            best, why = present, _cooling(before, age, targets)
        elif (gain := _gain(present, best)) < targets.gain:
            why = f"stays at {before}: {best.tasks} would gain a factor of {float(gain):.2f} only"
            best = present
    return Sized(stage.name, steps, best.scheme, best.tasks, before, why)


def _fixed(plan: Plan, stage: Stage) -> str:
    """Why the number of tasks is not for sizing to choose; empty if it is."""
    if stage.partitioner is not None:
        return f"stays at {stage.by_scheme}: its partitioner {stage.partitioner} chooses"
    if stage.scheme.most_records is not None:
        return f"stays at {stage.scheme}: its tasks go by the records of each batch"
    if isinstance(stage.why, Unifying):
        return f"stays at {stage.by_scheme}: the fan-in of {stage.why.combine} says how many unifiers it needs"
    if together := [step.name for step in stage.steps if gathers(step)]:
        return f"stays at {stage.by_scheme}: {', '.join(together)} must have all records together"
    sized = {exchange.name for exchange in plan.exchanges if traffic(plan, exchange).bytes is not None}
    unsized = (read for read in stage.inputs if not isinstance(read, StreamInput | StateInput))
    if unknown := [read.name for read in unsized if read.name not in sized]:
        return f"stays at {stage.by_scheme}: the size of {', '.join(unknown)} is known only once it is written"
    return ""


def _target(stage: Stage, history: Sequence[Statistics], targets: Targets) -> tuple[Fraction, str]:
    """The bytes of work that a task may have, and how that came about."""
    target = Fraction(targets.bytes)
    if targets.seconds is None:
        return target, f"{size(targets.bytes)} a task"
    pace = _pace(stage, history)
    if pace is None:
        return target, f"{size(targets.bytes)} a task, as no batch has yet shown how many seconds that takes"
    timed = Fraction(targets.seconds) / pace
    if timed >= target:
        return target, f"{size(targets.bytes)} a task, which takes less than {targets.seconds:g} s"
    return timed, f"{targets.seconds:g} s a task, which is {size(int(timed))} at the pace of the last batches"


def _pace(stage: Stage, history: Sequence[Statistics]) -> Fraction | None:
    """Seconds per byte of work in the last batches; None if it was not measured."""
    figures = [
        took
        for batch in history
        for task, took in batch.tasks.items()
        if task.stage == stage.name and took.seconds is not None and took.records
    ]
    work = sum((took.bytes * (LEFT + (1 - LEFT) * _kept(took.records, took.taken)) for took in figures), Fraction())
    seconds = sum((Fraction(took.seconds or 0) for took in figures), Fraction())
    return seconds / work if work and seconds else None


def _kept(records: int, taken: int | None) -> Fraction:
    return Fraction(1) if taken is None else Fraction(taken, records)


def _candidates(workload: Workload, targets: Targets) -> list[_Candidate]:
    """The numbers of tasks within the bounds, ascending; the nearest below if the planner accepts none of those."""
    numbers = [tasks for tasks in range(1, targets.max_tasks + 1) if workload.allows(tasks)]
    within = [tasks for tasks in numbers if tasks >= targets.min_tasks] or numbers[-1:]
    by_tasks = {tasks: _coset_candidate(workload, tasks, targets) for tasks in within}
    if workload.whole is not None and targets.min_tasks <= len(workload.whole) <= targets.max_tasks:
        load = workload.whole_load()
        by_tasks[len(workload.whole)] = _Candidate(len(workload.whole), MAX, load, False, _cost(load, False, targets))
    return [by_tasks[tasks] for tasks in sorted(by_tasks)]


def _coset_candidate(workload: Workload, tasks: int, targets: Targets) -> _Candidate:
    load, filtered = workload.load(tasks), workload.filtered(tasks)
    return _Candidate(tasks, scheme_of(tasks), load, filtered, _cost(load, filtered, targets))


def _cost(load: Load, filtered: bool, targets: Targets) -> Fraction:
    return max(load.mean, load.heaviest / Fraction(targets.skew)) / (1 if filtered else NEAR)


def _best(candidates: Sequence[_Candidate], target: Fraction, unit: str, targets: Targets) -> tuple[_Candidate, str]:
    least = min(candidate.cost for candidate in candidates)
    best = next(candidate for candidate in _worthwhile(candidates) if candidate.cost <= max(target, NEAR * least))
    work = f"{size(round(best.load.mean))} of work a task, {size(round(best.load.heaviest))} in the heaviest"
    reading = "records are filtered" if best.filtered else "whole partitions, no filter"
    tried = f"{candidates[0].tasks} to {candidates[-1].tasks} tasks"
    reached = f"the target is {unit}" if least <= target else f"{tried} do not reach {unit}, this is near the best"
    return best, f"{work}; {reading}; {reached}{_bound(best, candidates, targets)}"


def _worthwhile(candidates: Sequence[_Candidate]) -> Iterator[_Candidate]:
    """The candidates that a quarter more tasks, or fewer, would not make lighter by more than a quarter.

    For example, five tasks over twelve partitions each read all of them, but six tasks read two each.
    """
    others, lightest = deque(candidates), candidates[0].cost
    for candidate in candidates:
        while others and others[0].tasks <= NEAR * candidate.tasks:
            lightest = min(lightest, others.popleft().cost)
        if candidate.cost <= NEAR * lightest:
            yield candidate


def _bound(best: _Candidate, candidates: Sequence[_Candidate], targets: Targets) -> str:
    """Which bound it was that decided, if one did."""
    if candidates[-1].tasks < targets.min_tasks:
        return f"; no more than {candidates[-1].tasks} tasks are possible, as the placement is {OPAQUE}"
    return f"; no fewer than {targets.min_tasks} are allowed" if best.tasks == targets.min_tasks > 1 else ""


def _gain(present: _Candidate, best: _Candidate) -> Fraction:
    """The factor by which the change makes tasks fewer, or lighter. If tasks must then filter, they count as a quarter
    heavier."""
    if best.tasks < present.tasks:
        return Fraction(present.tasks, best.tasks)
    return present.cost / best.cost


def _age(past: Sequence[int]) -> int | None:
    """How many batches ran with the newest number; None if no other is known."""
    changed = next((place for place in range(len(past) - 1, 0, -1) if past[place - 1] != past[-1]), None)
    return None if changed is None else len(past) - changed


def _cooling(before: int, age: int, targets: Targets) -> str:
    return (
        f"stays at {before}: changed {age} batch{'es' * (age != 1)} ago, the next change comes after {targets.cooldown}"
    )


def _groups(plan: Plan, stages: Sequence[Sized], history: Sequence[Statistics], targets: Targets) -> tuple[int, str]:
    waves: dict[int, int] = {}
    for stage, sized in zip(plan.stages, stages, strict=True):
        more = sum(task.null_keys for task in stage.tasks) if sized.scheme is not None else 0
        waves[stage.wave] = waves.get(stage.wave, 0) + sized.tasks + more
    tasks = max(waves.values())
    needed = max(targets.min_groups, min(-(-tasks // targets.group_tasks), targets.max_groups, tasks))
    past = [batch.groups for batch in history if batch.groups is not None]
    before = past[-1] if past else most_groups(plan)
    within = targets.min_groups <= before <= targets.max_groups
    why = f"{many(tasks, 'task')}, up to {targets.group_tasks} a group"
    if not within or needed == before:
        return needed, why
    if (age := _age(past)) is not None and age < targets.cooldown:
        return before, _cooling(before, age, targets)
    if needed < before <= needed * targets.gain:
        return before, f"stays at {before}: {needed} would do, which is not less by a factor of {targets.gain:g}"
    return needed, why
