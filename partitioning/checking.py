"""Checking: a plan as a whole, whoever made it, before it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import gcd

from partitioning.assignment import Residues, Task
from partitioning.cosets import partitions_of
from partitioning.errors import Finding, Refused
from partitioning.plan import Plan, PlannedStream, Stage, TaskRef
from partitioning.streams import OWN_TASK

_NEXT = "correct the partitioner that made this plan"


def check(plan: Plan) -> Plan:
    """The plan itself, if each record it reads reaches one task, and equal keys reach the same one.

    Raises Refused with all findings: partitions missing or out of order, residues of a partition that reach
    no task or several, keys that do not meet in a keyed stage, tasks that are in no group or in several.
    """
    findings = [
        finding
        for found in (_partitions(plan), _groups(plan), *(_stage(plan, stage) for stage in plan.stages))
        for finding in found
    ]
    if findings:
        raise Refused(*findings)
    return plan


def _partitions(plan: Plan) -> Iterator[Finding]:
    for stream in plan.streams:
        if [each.partition for each in stream.partitions] != list(range(stream.declared.partitions)):
            yield Finding("the plan does not hold every partition once, in order", f"stream {stream.name!r}", _NEXT)
        for each in stream.partitions:
            if not 0 <= each.start <= each.end:
                where = f"{stream.name}-{each.partition}"
                yield Finding(f"[{each.start},{each.end}) is no range of offsets", where, _NEXT)
    if twice := _twice(name for stage in plan.stages for name in stage.streams):
        yield Finding(f"streams are in two stages: {', '.join(twice)}", f"batch {plan.batch}", _NEXT)
    if lost := sorted({each.name for each in plan.streams} - {name for stage in plan.stages for name in stage.streams}):
        yield Finding(f"streams are in no stage: {', '.join(lost)}", f"batch {plan.batch}", _NEXT)


def _groups(plan: Plan) -> Iterator[Finding]:
    tasks = {str(TaskRef(stage.name, task.task)) for stage in plan.stages for task in stage.tasks}
    grouped = [str(task) for group in plan.groups for task in group.tasks]
    if twice := _twice(iter(grouped)):
        yield Finding(f"tasks are in two groups: {', '.join(twice)}", f"batch {plan.batch}", _NEXT)
    if differ := sorted(tasks ^ set(grouped)):
        yield Finding(f"tasks and groups do not agree on {', '.join(differ)}", f"batch {plan.batch}", _NEXT)


def _stage(plan: Plan, stage: Stage) -> Iterator[Finding]:
    where = f"stage {stage.name}"
    if [task.task for task in stage.tasks] != list(range(len(stage.tasks))):
        yield Finding("tasks are not numbered 0, 1, 2 …", where, _NEXT)
    keyed = [task for task in stage.tasks if not task.null_keys]
    if len(keyed) != stage.cosets:
        yield Finding(f"{len(keyed)} tasks take keys, but there are {stage.cosets} cosets", where, _NEXT)
    yield from _null_keys(plan, stage, where)
    for name in stage.streams:
        stream = plan.stream(name)
        yield from _reached(keyed, stream)
        if any(step.keyed for step in stage.steps):
            yield from _meeting(keyed, stream, stage)


def _null_keys(plan: Plan, stage: Stage, where: str) -> Iterator[Finding]:
    planned = {
        name: tuple(range(plan.stream(name).declared.partitions))
        for name in stage.streams
        if plan.stream(name).declared.null_keys == OWN_TASK
    }
    found = [dict(task.reads) for task in stage.tasks if task.null_keys]
    if found != ([planned] if planned else []):
        yield Finding("records without a key do not have one task of their own, as declared", where, _NEXT)


def _reached(tasks: list[Task], stream: PlannedStream) -> Iterator[Finding]:
    """Every residue that a partition can hold must reach one task: all of them the same, or each its own."""
    readers: list[list[Task]] = [[] for _ in range(stream.declared.partitions)]
    for task in tasks:
        for partition in task.reads.get(stream.name, ()):
            readers[partition].append(task)
    for partition, some in enumerate(readers):
        filters = [task.filters.get(stream.name) for task in some]
        residues = [each for each in filters if each is not None]
        if filters != [None] and not (len(residues) == len(filters) and _complete(residues, stream, partition)):
            read = ", ".join(str(task.task) for task in some) or "none"
            what = f"its records do not reach exactly one task each (tasks that read it: {read})"
            yield Finding(what, f"{stream.name}-{partition}", _NEXT)


def _complete(filters: list[Residues], stream: PlannedStream, partition: int) -> bool:
    if len({each.modulus for each in filters}) != 1:
        return False
    modulus = filters[0].modulus
    step = gcd(modulus, stream.declared.partitions)
    held = [residue for each in filters for residue in each.residues if residue % step == partition % step]
    return sorted(held) == list(range(partition % step, modulus, step))


def _meeting(tasks: list[Task], stream: PlannedStream, stage: Stage) -> Iterator[Finding]:
    """Equal keys meet if each task reads nothing but its own cosets, of every stream."""
    for task in tasks:
        own = {each for owned in task.owns for each in partitions_of(owned, stage.cosets, stream.declared.partitions)}
        residue = task.filters.get(stream.name)
        strange = residue is not None and residue != Residues(stage.cosets, task.owns)
        if strange or not set(task.reads.get(stream.name, ())) <= own:
            what = f"task {task.task} takes keys of {stream.name} that belong to other tasks"
            yield Finding(what, f"stage {stage.name}", _NEXT)


def _twice(names: Iterator[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
