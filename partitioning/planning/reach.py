"""Coverage: whether each record that a stage reads reaches one of its tasks, and equal keys the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import gcd

from partitioning.errors import Finding
from partitioning.model.plan import STREAM, Input, Plan, Stage
from partitioning.model.streams import OWN_TASK
from partitioning.model.tasks import Residues, Task
from partitioning.planning.exchanges.placements import gathers

NEXT = "correct the partitioner that made this plan"
_SHOWN = 8


def uncovered(plan: Plan, stage: Stage, left: Collection[str]) -> Iterator[Finding]:
    """What is wrong with the tasks of a stage. `left` are the steps whose rows other stages read by their keys."""
    where = f"stage {stage.name}"
    if [task.task for task in stage.tasks] != list(range(len(stage.tasks))):
        yield Finding("tasks are not numbered 0, 1, 2 …", where, NEXT)
    keyed = [task for task in stage.tasks if not task.null_keys]
    together = [step.name for step in stage.steps if step.keyed]
    yield from _owned(keyed, stage, together, where)
    yield from _null_keys(plan, stage, where)
    keeps = bool(together) or any(step.name in left for step in stage.steps)
    for each in stage.inputs:
        yield from _Covered(stage, each, numbers(plan, each)).findings(keyed, keeps=keeps)


def numbers(plan: Plan, each: Input) -> Sequence[int]:
    """The partitions of an input that there are to read."""
    if each.only is not None:
        return each.only
    return range(plan.stream(each.step).declared.partitions if each.kind == STREAM else each.placement.partitions)


def listed(values: Iterable[object]) -> str:
    """The first few of them."""
    texts = [str(value) for value in values]
    rest = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + rest


def _owned(tasks: Sequence[Task], stage: Stage, together: Sequence[str], where: str) -> Iterator[Finding]:
    """Each residue is one task's, or none is any task's, where keys need not be kept together."""
    owners = Counter(residue for task in tasks for residue in task.owns)
    if stage.cosets < 1:
        yield Finding(f"it has {stage.cosets} cosets", where, NEXT)
    elif not owners:
        if together:
            yield Finding(f"no task owns keys, but {listed(together)} needs them together", where, NEXT)
        if len(tasks) != stage.cosets:
            yield Finding(f"{len(tasks)} tasks take records, but there are {stage.cosets} cosets", where, NEXT)
    else:
        wrong = [residue for residue in range(stage.cosets) if owners[residue] != 1]
        wrong += sorted(residue for residue in owners if not 0 <= residue < stage.cosets)
        if wrong:
            what = f"keys with h(key) mod {stage.cosets} = {listed(wrong)} are not exactly one task's"
            yield Finding(what, where, NEXT)


def _null_keys(plan: Plan, stage: Stage, where: str) -> Iterator[Finding]:
    own = {each.name for each in plan.streams if each.declared.null_keys == OWN_TASK}.intersection(stage.streams)
    planned = {
        each.name: tuple(numbers(plan, each)) if each.kind == STREAM else (0,)
        for each in stage.inputs
        if own and (each.name in own if each.kind == STREAM else each.placement.key)
    }
    if any(gathers(step) for step in stage.steps):
        planned = {}
    found = [dict(task.reads) for task in stage.tasks if task.null_keys]
    if found != ([planned] if planned else []):
        yield Finding("records without a key do not have one task of their own, as declared", where, NEXT)


class _Covered:
    """How much of each partition of an input reaches tasks, counted in cosets of the stage."""

    def __init__(self, stage: Stage, each: Input, numbers: Sequence[int]) -> None:
        self._stage = stage
        self._input = each
        self._keyed = bool(each.placement.key)
        # Partition p holds the cosets that are ≡ p modulo this: so many.
        self._step = gcd(each.placement.partitions, stage.cosets) if self._keyed else stage.cosets
        self._held = stage.cosets // self._step if self._step else 0
        self._reached = dict.fromkeys(numbers, 0)

    def findings(self, tasks: Sequence[Task], *, keeps: bool) -> Iterator[Finding]:
        """Every coset of a partition must reach one task: its owner, where the stage `keeps` keys together."""
        where = f"stage {self._stage.name}"
        for task in tasks:
            if wrong := self._read(task, keeps=keeps and self._keyed):
                yield Finding(f"task {task.task} {wrong}", where, NEXT)
        for number, reached in self._reached.items():
            if reached != self._held:
                readers = (
                    listed(task.task for task in tasks if number in task.reads.get(self._input.name, ())) or "none"
                )
                what = f"its records do not reach exactly one task each (tasks that read it: {readers})"
                yield Finding(what, f"{self._input.name}-{number}, {where}", NEXT)

    def _read(self, task: Task, *, keeps: bool) -> str | None:
        """Count what a task takes; what is wrong with that."""
        name, wrong = self._input.name, None
        whole = name not in task.filters
        right = whole or task.filters[name] == Residues(self._stage.cosets, task.owns)
        owned = Counter(residue % self._step for residue in task.owns)
        for number in task.reads.get(name, ()):
            own = owned[number % self._step]
            taken = self._held if whole else own if right else 0
            if keeps and taken != own:
                wrong = f"takes keys of {name} that belong to other tasks"
            if number in self._reached:
                self._reached[number] += taken
            else:
                wrong = f"reads {name}-{number}, which is not there to be read"
        return wrong
