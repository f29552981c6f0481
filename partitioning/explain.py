"""Explain: a plan as tables for people, and what changed since the plan before. Pure data; others draw it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partitioning.assignment import Assignment, Task
from partitioning.changes import changes
from partitioning.document import digest
from partitioning.plan import Plan, PlannedStream, Stage, TaskGroup, TaskRef

MOST_ROWS = 20
MOST_RANGES = 8


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table. Each row has a cell for each column; `notes` are sentences to show above it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def explain(plan: Plan, previous: Plan | None = None) -> tuple[Section, ...]:
    """The plan for people: streams, the tasks of each stage, task groups, result tables, changes.

    `previous` is the plan to compare with. Long lists are cut and say how much they leave out.
    """
    groups = {task: group.group for group in plan.groups for task in group.tasks}
    return (
        _streams(plan),
        *(_stage(plan, stage, groups) for stage in plan.stages),
        _groups(plan),
        _results(plan),
        _changes(plan, previous),
    )


def markdown(sections: Iterable[Section]) -> str:
    """The sections as Markdown, aligned so that logs can be read as they are.

    >>> print(markdown([Section("Groups", ("group", "tasks"), (("0", "views/0-3"),), ("One group.",))]), end="")
    ### Groups
    <BLANKLINE>
    One group.
    <BLANKLINE>
    | group | tasks     |
    | ----- | --------- |
    | 0     | views/0-3 |
    """
    return "\n".join("\n\n".join(_blocks(section)) + "\n" for section in sections)


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """An assignment as plain data, ready for JSON.

    >>> from partitioning.assignment import assign
    >>> from partitioning.schemes import COGROUP
    >>> assignment_document(assign([("views", 2), ("clicks", 3)], COGROUP))
    {'scheme': 'cogroup', 'tasks': [{'task': 0, 'reads': {'views': [0, 1], 'clicks': [0, 1, 2]}, 'filters': {}}]}
    """
    return {
        "scheme": assignment.scheme,
        "tasks": [
            {
                "task": task.task,
                "reads": {stream: list(partitions) for stream, partitions in task.reads.items()},
                "filters": {
                    stream: {"modulus": kept.modulus, "residue": kept.residues[0]}
                    for stream, kept in task.filters.items()
                },
            }
            for task in assignment.tasks
        ],
    }


def _streams(plan: Plan) -> Section:
    columns = ("stream", "key", "placement", "partitions", "records", "bytes", "records without a key")
    notes = (
        f"Batch {plan.batch} of {plan.pipeline}: {_many(plan.records, 'record')} to read.",
        f"Plan {digest(plan)}" + (f", after {plan.parent}." if plan.parent else ", the first of the pipeline."),
    )
    return Section("Streams", columns, tuple(_stream(stream) for stream in plan.streams), notes)


def _stream(stream: PlannedStream) -> tuple[str, ...]:
    declared = stream.declared
    records = sum(each.end - each.start for each in stream.partitions)
    return (
        declared.name + (" (table, read whole)" if declared.table else ""),
        f"{declared.key} ({declared.key_format})",
        declared.placement,
        str(declared.partitions),
        f"{records:,}",
        _size(sum(each.bytes for each in stream.partitions)),
        declared.null_keys,
    )


def _stage(plan: Plan, stage: Stage, groups: Mapping[TaskRef, int]) -> Section:
    columns = ("task", "group", *stage.streams, "records", "filter")
    rows = [_task(plan, stage, task, groups) for task in stage.tasks[:MOST_ROWS]]
    more = len(stage.tasks) - MOST_ROWS
    if more > 0:
        rows.append((f"… and {more} more", *[""] * (len(columns) - 1)))
    notes = (
        f"Scheme {stage.scheme}: {_many(stage.cosets, 'task')}. {stage.why}.",
        "Steps: " + (", ".join(step.name for step in stage.steps) or "none") + ".",
    )
    return Section(f"Stage {stage.name}", columns, tuple(rows), notes)


def _task(plan: Plan, stage: Stage, task: Task, groups: Mapping[TaskRef, int]) -> tuple[str, ...]:
    ranges = [[plan.stream(name).range(number) for number in task.reads.get(name, ())] for name in stage.streams]
    return (
        str(task.task),
        str(groups[TaskRef(stage.name, task.task)]),
        *(_cut([f"{each.partition.partition}@[{each.start},{each.end})" for each in some]) for some in ranges),
        f"{sum(len(each) for some in ranges for each in some):,}",
        "records without a key only" if task.null_keys else _filters(task, stage.streams),
    )


def _filters(task: Task, streams: tuple[str, ...]) -> str:
    filtered = [(name, task.filters[name]) for name in streams if name in task.filters]
    return ", ".join(f"{name}: {each}" for name, each in filtered)


def _groups(plan: Plan) -> Section:
    rows = tuple((str(group.group), _tasks(group), _size(group.bytes), f"{group.records:,}") for group in plan.groups)
    notes = []
    if sum(group.records for group in plan.groups) > plan.records:
        notes.append("Stream partitions that several tasks read are counted for each.")
    return Section("Task groups", ("group", "tasks", "bytes", "records"), rows, tuple(notes))


def _tasks(group: TaskGroup) -> str:
    numbers: dict[str, list[int]] = {}
    for task in group.tasks:
        numbers.setdefault(task.stage, []).append(task.task)
    return ", ".join(f"{stage}/{_cut(list(_runs(some)))}" for stage, some in numbers.items())


def _results(plan: Plan) -> Section:
    rows = tuple(
        (
            write.declared.table,
            write.declared.step,
            ", ".join(f"{column.name} {column.type}" for column in write.columns),
            "yes" if write.declared.lineage else "no",
            str(len(write.declared.expectations)),
        )
        for write in plan.writes()
    )
    return Section("Result tables", ("table", "step", "columns", "lineage", "expectations"), rows, ())


def _changes(plan: Plan, previous: Plan | None) -> Section:
    columns = ("what", "before", "now")
    if previous is None:
        return Section("Changes", columns, (), ("There is no earlier plan to compare with.",))
    found = changes(previous, plan)
    rows = tuple((each.what, each.before, each.now) for each in found[:MOST_ROWS])
    if len(found) > MOST_ROWS:
        rows += ((f"… and {len(found) - MOST_ROWS} more", "", ""),)
    notes = (f"Compared with batch {previous.batch}.",) if rows else ("Nothing changed but the offsets.",)
    return Section("Changes", columns, rows, notes)


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    """Ascending numbers with neighbours drawn together: 0-3, 7."""
    start = 0
    for position, number in enumerate(numbers):
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1:
            yield f"{numbers[start]}-{number}" if number > numbers[start] else str(number)
            start = position + 1


def _cut(words: Sequence[str]) -> str:
    more = [f"… and {len(words) - MOST_RANGES} more"] if len(words) > MOST_RANGES else []
    return ", ".join([*words[:MOST_RANGES], *more])


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _size(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB", "PB"]
    while size >= 999.95 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def _blocks(section: Section) -> Iterator[str]:
    yield f"### {section.title}"
    yield from section.notes
    if section.rows:
        lines = [[_cell(cell) for cell in line] for line in (section.columns, *section.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        yield "\n".join("| " + " | ".join(line) + " |" for line in padded)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
