"""Production: how many rows the steps of each task made, beside how many rows its files have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from partitioning.model.artefact import Artefact, Role
from partitioning.model.graph import Mode, Op, waiting
from partitioning.model.leaving import given_to, leavings
from partitioning.model.plan import Plan, Stage
from partitioning.model.receipt import Made, TaskReceipt
from partitioning.model.stage_inputs import StateInput

# These steps pass each record on unchanged.
_MOVING = (Op.MERGE, Op.REPARTITION)


def produced(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each of its outputs. An upserted table has one for each partition."""
    for task in tasks:
        stage = plan.stage(task.task.stage)
        made = {(each.role, each.name): each for each in task.made or ()}
        files: dict[tuple[Role, str], list[Artefact]] = {}
        for artefact in task.artefacts:
            files.setdefault((artefact.role, artefact.name), []).append(artefact)
        upserted = {write.declared.table for write in stage.writes if write.declared.mode is Mode.UPSERT}
        asked = [(Role.TABLE, write.declared.table, write.declared.step) for write in stage.writes]
        asked += [(left.role, left.name, left.step) for left in leavings(plan, task.task)]
        asked += [(Role.GIVEN, name, read) for name, read in _given(stage)]
        for role, name, step in asked:
            row = {"stage": stage.name, "task": task.task.task, "kind": role.value, "name": name}
            row |= {"counted": task.made is not None, "partition": None, "taken": None}
            stated, there = made.get((role, name)), files.get((role, name), [])
            if role is Role.TABLE and name in upserted:
                yield from (row | part for part in _by_partition(stated, there))
            else:
                figures = {"made": stated.records if stated else None, "left": sum(file.records for file in there)}
                taken = None if role is Role.STATE else _taken(plan, stage, task, step)
                yield row | figures | {"taken": taken}


def migrated(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each step of which it had to write all kept rows again: rows, keys, before and after."""
    for task in tasks:
        said = {each.step: each for each in task.migrated}
        for read in plan.stage(task.task.stage).inputs:
            if isinstance(read, StateInput) and read.migration:
                row = {"stage": task.task.stage, "task": task.task.task, "step": read.step}
                if each := said.get(read.step):
                    row |= {"rows_before": each.before.rows, "keys_before": each.before.digest}
                    row |= {"rows_after": each.after.rows, "keys_after": each.after.digest}
                yield row


def closed(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each step whose records are given once their time is over."""
    for task in tasks:
        said = {each.step: each for each in task.closed}
        for name, as_of, of_keys in _waiting(plan.stage(task.task.stage)):
            row: dict[str, object] = {"stage": task.task.stage, "task": task.task.task, "step": name}
            row |= {"late_versions": 0, "of_keys": of_keys}
            if (each := said.get(name)) and as_of == (each.versions is not None):
                parts = {"over": each.over, "met": each.met, "alone": each.alone}
                row |= {f"{part}_rows": keyed.rows for part, keyed in parts.items()}
                row |= {f"{part}_keys": keyed.digest for part, keyed in parts.items()} | {"late": each.late}
                row |= {"dropped": each.dropped}
                if versions := each.versions:
                    row |= {"given_rows": versions.given.rows, "given_keys": versions.given.digest}
                    row |= {"late_versions": versions.late}
            yield row


def _waiting(stage: Stage) -> Iterator[tuple[str, bool, bool]]:
    """The steps whose records are given once their time is over, whether it is by a join as of a time, and whether keys
    expire instead."""
    steps = {step.name: step for step in stage.steps}
    for step in stage.steps:
        inputs = (steps[name].state for name in step.inputs if name in steps)
        as_of = any(state and state.newest for state in inputs)
        of_keys = step.state is not False and step.state.of_lives
        yield from ((name, as_of, of_keys) for name in waiting(step, steps))


def _given(stage: Stage) -> Iterator[tuple[str, str]]:
    """The inputs of steps on DataFrames, each with its stream or step."""
    for step in stage.steps:
        yield from zip(given_to(step), step.inputs, strict=False)


def _by_partition(stated: Made | None, files: Iterable[Artefact]) -> Iterator[dict[str, object]]:
    """The rows made and written of each partition of an upserted table. A partition that is rewritten has to have a
    file, even without rows; no other may have one."""
    made = dict(stated.parts) if stated else {}
    left = {part.partition: file.records for file in files for part in file.parts}
    for partition in sorted(made.keys() | left.keys()):
        yield {"partition": partition, "made": made.get(partition), "left": left.get(partition)}


def _taken(plan: Plan, stage: Stage, task: TaskReceipt, name: str) -> int | None:
    """How many records a task took for `name`, if all steps on the way only move records. Otherwise None."""
    step = next((step for step in stage.steps if step.name == name), None)
    if step is not None:
        parts = [_taken(plan, stage, task, given) for given in step.inputs] if step.op in _MOVING else [None]
        return None if None in parts else sum(part for part in parts if part is not None)
    inputs = [read for read in stage.inputs if read.step == name and not isinstance(read, StateInput)]
    if not inputs or any(_is_table(plan, read.step) for read in inputs):
        return None
    names = {read.name for read in inputs}
    return sum(seen.taken for seen in task.partitions if seen.input in names)


def _is_table(plan: Plan, name: str) -> bool:
    """Whether the stream is a table, of which only the latest record of each key counts."""
    return any(stream.name == name and stream.declared.table for stream in plan.streams)
