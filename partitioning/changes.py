"""Changes: what differs between two plans of a pipeline, apart from the offsets they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from partitioning.plan import Plan, TaskRef
from partitioning.streams import Column

_ABSENT = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, in words. `before` is empty for what is new, `now` for what is gone."""

    what: str
    before: str
    now: str


def changes(before: Plan, now: Plan) -> tuple[Change, ...]:
    """All differences between two plans that are not offsets, sizes or files."""
    return (
        *_of_named("stream", _streams(before), _streams(now)),
        *_of_named("stage", _stages(before), _stages(now)),
        *_of_named("step", _steps(before), _steps(now)),
        *_of_named("table", _tables(before), _tables(now)),
        *_between("", _whole(before), _whole(now)),
        *_moved(_groups(before), _groups(now)),
    )


def _of_named(
    noun: str, before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *now]):
        if name not in now:
            yield Change(f"{noun} {name}", "there", "removed")
        elif name not in before:
            yield Change(f"{noun} {name}", _ABSENT, "added")
        else:
            yield from _between(f"{noun} {name}: ", before[name], now[name])


def _between(prefix: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    for word in dict.fromkeys([*before, *now]):
        if before.get(word) != now.get(word):
            yield Change(prefix + word, before.get(word, _ABSENT), now.get(word, _ABSENT))


def _streams(plan: Plan) -> dict[str, dict[str, str]]:
    return {each.name: _fields(each.declared) | _columns(each.columns) for each in plan.streams}


def _stages(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        each.name: {"scheme": each.scheme, "cosets": str(each.cosets), "tasks": str(len(each.tasks))}
        for each in plan.stages
    }


def _steps(plan: Plan) -> dict[str, dict[str, str]]:
    return {step.name: {"SQL": step.sql} for stage in plan.stages for step in stage.steps}


def _tables(plan: Plan) -> dict[str, dict[str, str]]:
    return {each.declared.table: _fields(each.declared) | _columns(each.columns) for each in plan.writes()}


def _whole(plan: Plan) -> dict[str, str]:
    return {"task groups": str(len(plan.groups)), "planner": plan.planner}


def _groups(plan: Plan) -> dict[TaskRef, int]:
    return {task: group.group for group in plan.groups for task in group.tasks}


def _moved(before: Mapping[TaskRef, int], now: Mapping[TaskRef, int]) -> Iterator[Change]:
    for task, group in now.items():
        if before.get(task, group) != group:
            yield Change(f"task {task}", f"group {before[task]}", f"group {group}")


def _fields(declared: Any) -> dict[str, str]:
    values = {field.name: getattr(declared, field.name) for field in dataclasses.fields(declared)}
    return {name.replace("_", " "): _text(value) for name, value in values.items()}


def _columns(columns: tuple[Column, ...]) -> dict[str, str]:
    return {f"column {column.name}": column.type for column in columns}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, tuple) else str(value)
