"""The stored form of a plan: what is long and follows from a rule is stored as the rule.

The partitions of a stream are stored by columns. Of a stage's tasks, only those are stored that differ from the coset
rule, or from the ranges that a scheme or a hot key assigns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from partitioning.cosets.assignment import stage_tasks
from partitioning.cosets.ranges import assign_ranges, assign_shares_of_keys
from partitioning.documents.stored_columns import from_columns, to_columns
from partitioning.model.plan import Plan, Stage
from partitioning.model.planned_streams import PlannedPartition, PlannedStream
from partitioning.model.read_ends import End, StreamProgress
from partitioning.model.reasons import AllTogether, Dealt, HotRanges, InRanges, OwnTasks, TaskCountReason
from partitioning.model.schemes import Scheme
from partitioning.model.stage_inputs import Input
from partitioning.model.takes import Task
from partitioning.values import Value, replace

_Partitions = Mapping[str, Sequence[PlannedPartition]]


def to_form(plan: Plan) -> dict[str, Any]:
    """A plan's fields as they are stored; its streams and stages one after the other, as there may be many."""
    read = {stream.name: stream.partitions for stream in plan.streams}
    streams = (
        _fields(stream) | {"partitions": to_columns(PlannedPartition, stream.partitions)} for stream in plan.streams
    )
    stages = (_fields(stage) | {"tasks": _exceptions(_by_rule(stage, read), stage.tasks)} for stage in plan.stages)
    form = _fields(plan) | {"streams": streams, "stages": stages}
    if isinstance(plan.remembered, tuple):
        form["remembered"] = [_fields(read) | {"ends": to_columns(End, read.ends)} for read in plan.remembered]
    return form


def from_form(members: Mapping[str, msgspec.Raw]) -> Plan:
    """The plan with these stored fields, each in JSON. Raises what plain data raises that is no plan."""
    streams = tuple(_stream(raw) for raw in _each(members["streams"]))
    read = {stream.name: stream.partitions for stream in streams}
    stages = [_stage(msgspec.json.decode(raw), read) for raw in _each(members["stages"])]
    held = ("format", "streams", "stages", "remembered")
    others = {name: msgspec.json.decode(raw) for name, raw in members.items() if name not in held}
    plan = replace(msgspec.convert(others | {"streams": (), "stages": stages}, Plan), streams=streams)
    return (
        replace(plan, remembered=tuple(map(_read, _each(members["remembered"])))) if "remembered" in members else plan
    )


def _each(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return msgspec.json.decode(raw, type=list[msgspec.Raw])


def _stream(raw: msgspec.Raw) -> PlannedStream:
    stored = msgspec.json.decode(raw)
    partitions = from_columns(PlannedPartition, stored["partitions"])
    return replace(msgspec.convert(stored | {"partitions": ()}, PlannedStream), partitions=partitions)


def _read(raw: msgspec.Raw) -> StreamProgress:
    stored = msgspec.json.decode(raw)
    return replace(msgspec.convert(stored | {"ends": ()}, StreamProgress), ends=from_columns(End, stored["ends"]))


def _stage(stored: dict[str, Any], read: _Partitions) -> dict[str, Any]:
    return stored | {"tasks": _with_exceptions(_stage_by_rule(stored, read), stored["tasks"])}


def _fields(value: Value) -> dict[str, Any]:
    """The fields that are stored: those that are set, and differ from their default if such are left out."""
    fields = msgspec.structs.asdict(value)
    if value.__struct_config__.omit_defaults:
        kept = _defaults(type(value))
        return {name: held for name, held in fields.items() if held is not kept[name] and held != kept[name]}
    return {name: held for name, held in fields.items() if held is not msgspec.UNSET}


@cache
def _defaults(kind: type[Value]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def _by_rule(stage: Stage, read: _Partitions) -> tuple[Task, ...]:
    """The tasks that the coset rule gives a stage, or its scheme by what is `read` of each stream."""
    return _ruled(stage.inputs, stage.scheme, stage.cosets, stage.why, read)


def _stage_by_rule(stored: dict[str, Any], read: _Partitions) -> tuple[Task, ...]:
    inputs = msgspec.convert(stored["inputs"], tuple[Input, ...])
    scheme, why = msgspec.convert(stored["scheme"], Scheme), msgspec.convert(stored["why"], TaskCountReason)
    return _ruled(inputs, scheme, msgspec.convert(stored["cosets"], int), why, read)


def _ruled(
    inputs: Sequence[Input], scheme: Scheme, cosets: int, why: TaskCountReason, read: _Partitions
) -> tuple[Task, ...]:
    tasks = stage_tasks(inputs, cosets, _owners(scheme, cosets, why), gathered=isinstance(why, AllTogether))
    if isinstance(why, OwnTasks):
        return assign_shares_of_keys(tasks, why, read)
    return assign_ranges(tasks, read, why.records) if isinstance(why, InRanges | HotRanges) else tasks


def _owners(scheme: Scheme, cosets: int, why: TaskCountReason) -> Sequence[tuple[int, ...]] | None:
    if isinstance(why, OwnTasks):
        return why.owners(cosets)
    return [(residue,) for residue in range(cosets)] if scheme.keeps_keys and not isinstance(why, Dealt) else None


def _exceptions(ruled: Sequence[Task], tasks: Sequence[Task]) -> dict[str, Any]:
    """How many there are, and those that are not as the rule says, by their place."""
    differing = {str(place): task for place, task in enumerate(tasks) if place >= len(ruled) or task != ruled[place]}
    return {"count": len(tasks), "exceptions": differing}


def _with_exceptions(ruled: Sequence[Task], stored: dict[str, Any]) -> tuple[Task, ...]:
    exceptions = {int(place): msgspec.convert(task, Task) for place, task in stored["exceptions"].items()}
    return tuple(exceptions[place] if place in exceptions else ruled[place] for place in range(stored["count"]))
