"""The stored form of a plan: what is long and follows from a rule is stored as the rule.

The partitions of a stream are stored by columns: field by field, numbers in a row as a rule. Of a stage's tasks, only
those are stored that differ from the coset rule, or from the ranges that a scheme or a hot key assigns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, islice
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from partitioning.cosets import assign_ranges, assign_shares_of_keys, stage_tasks
from partitioning.model.plan import Plan, Stage
from partitioning.model.read_ends import End, StreamProgress
from partitioning.model.reasons import AllTogether, Dealt, HotRanges, InRanges, OwnTasks, TaskCountReason
from partitioning.model.schemes import Scheme
from partitioning.model.stage_inputs import Input, PlannedPartition, PlannedStream
from partitioning.model.takes import Task
from partitioning.packed_rows import (
    EqualSteps,
    FieldKind,
    PackedColumn,
    PackedRows,
    Runs,
    Texts,
    column,
    numbers,
    parts,
    run,
)
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
    if plan.remembered is not None:
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
    fields = structs.asdict(value)
    if value.__struct_config__.omit_defaults:
        kept = _defaults(type(value))
        return {name: held for name, held in fields.items() if name not in kept or held != kept[name]}
    return {name: held for name, held in fields.items() if held is not msgspec.UNSET}


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


V = TypeVar("V", bound=Value)


def to_columns(kind: type[Value], rows: Iterable[Value]) -> dict[str, Any]:
    """Rows of the class `kind` as plain data. A field is text, a number or a tuple of rows.

    A field that has its default in all rows is left out. Offset ranges as a plan may hold them:

    >>> class Range(Value, frozen=True):
    ...     partition: int
    ...     start: int
    ...     end: int
    >>> to_columns(Range, [Range(0, 0, 25), Range(1, 0, 3), Range(2, 0, 9)])
    {'count': 3, 'fields': {'partition': {'first': 0, 'step': 1}, 'start': {'first': 0, 'step': 0}, 'end': [25, 3, 9]}}
    """
    held, defaults = PackedRows.of(kind, rows), _defaults(kind)
    fields = {
        name: _stored(values)
        for name, values in held.columns.items()
        if name not in defaults or any(value != defaults[name] for value in values)
    }
    return {"count": len(held), "fields": fields}


def from_columns(kind: type[V], stored: Any) -> PackedRows[V]:
    """The rows that `to_columns` drew together. Raises TypeError, ValueError or KeyError for anything else."""
    length, fields = stored["count"], stored["fields"]
    needed, known = set(parts(kind)) - set(_defaults(kind)), set(parts(kind))
    if set(stored) != {"count", "fields"} or not needed <= set(fields) <= known or type(length) is not int:
        raise TypeError(f"columns of {kind.__name__} are {sorted(stored)} of {sorted(fields)}")
    columns = {
        name: _read_column(part, fields[name], length)
        if name in fields
        else column(part, [_defaults(kind)[name]] * length)
        for name, part in parts(kind).items()
    }
    return PackedRows(kind, columns, length)


@cache
def _defaults(kind: type[Value]) -> Mapping[str, Any]:
    """The fields of a value class that have a default."""
    defaults = {field.name: {} if field.default_factory is dict else field.default for field in structs.fields(kind)}
    return {name: default for name, default in defaults.items() if default is not msgspec.NODEFAULT}


def _stored(values: PackedColumn) -> Any:
    """A column as plain data; of numbers at equal distances the first and the step, of text the common beginning."""
    match values:
        case EqualSteps():
            return {"first": values.first, "step": values.step}
        case Texts():
            return {"prefix": values.prefix, "rest": list(values.rests())} if values.prefix else list(values)
        case Runs():
            return {"counts": _stored(numbers(values.lengths())), "rows": to_columns(values.rows.kind, values.rows)}
        case array() | tuple():
            return list(values)


def _read_column(part: FieldKind, stored: Any, length: int) -> PackedColumn:
    """The values of a field as a column of this length."""
    if not part.is_run:
        return column(part, _values(stored, length, part.kind))
    lengths, rows = _values(stored["counts"], length, int), from_columns(part.kind, stored["rows"])
    if sum(lengths) != len(rows) or min(lengths, default=0) < 0:
        raise ValueError(f"tuples of {len(rows)} {part.kind.__name__} have {sum(lengths)}")
    return run(rows, lengths)


def _values(stored: Any, length: int, kind: type) -> list[Any]:
    if isinstance(stored, dict) and kind is str:
        return [stored["prefix"] + value for value in _values(stored["rest"], length, str)]
    if isinstance(stored, dict) and kind is int:
        return list(islice(_progression(stored["first"], stored["step"]), length))
    if len(stored) != length:
        raise ValueError(f"a column has {len(stored)} values, not {length}")
    if not set(map(type, stored)) <= {kind}:
        raise TypeError(f"a column has other values than {kind.__name__}")
    return list(stored)


def _progression(first: int, step: int) -> Iterator[int]:
    if type(first) is not int or type(step) is not int:
        raise TypeError("a progression is of numbers")
    return count(first, step)
