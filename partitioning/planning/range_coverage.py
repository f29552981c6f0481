"""Ranges, checked: whether those that tasks read of a stream partition make up what the batch reads of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from partitioning.errors import Finding, about
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, PlannedPartition, Stage
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.planning.task_coverage import NEXT, listed


def misdealt(plan: Plan, stage: Stage) -> Iterator[Finding]:
    """What is wrong with the tasks of a stage that read ranges: gaps and overlaps between them, and other tasks beside
    them; tasks that read more than a range or own keys; streams and steps of which records may not be told apart so.
    """
    ranged = [task for task in stage.tasks if task.span is not None]
    if not ranged:
        return
    where = f"stage {stage.name}"
    for task in ranged:
        if wrong := _no_range(plan, stage, task):
            yield Finding(
                Kind.PLAN_UNSOUND,
                f"task {task.task} reads the range {task.span}, but {wrong}",
                where,
                NEXT,
                about(task=task.task, span=task.span),
            )
    if keeping := [step.name for step in stage.steps if step.state]:
        yield Finding(
            Kind.PLAN_UNSOUND,
            f"tasks read ranges, but {listed(keeping)} goes on from its own last result",
            where,
            NEXT,
            about(keeping=keeping),
        )
    for read in stage.streams:
        declared = plan.stream(read.name).declared
        if declared.table or declared.null_keys is NullKeys.OWN_TASK:
            kind = "a table" if declared.table else "a stream whose records without a key have a task of their own"
            yield Finding(
                Kind.PLAN_UNSOUND,
                f"tasks read ranges beside {read.name}, which is {kind}",
                where,
                NEXT,
                about(read=read.name, kind=kind),
            )
        read_by = _spans(stage, read.name)
        for planned in plan.stream(read.name).partitions:
            spans = read_by.get(planned.partition, [])
            if any(span is not None for span in spans) and not _make_up(spans, planned):
                said = listed("all of it" if span is None else span for span in spans)
                what = f"tasks read {said}, which do not make up [{planned.start},{planned.end})"
                yield Finding(
                    Kind.PLAN_UNSOUND,
                    what,
                    f"{read.name}-{planned.partition}, {where}",
                    NEXT,
                    about(start=planned.start, end=planned.end),
                )


def _no_range(plan: Plan, stage: Stage, task: Task) -> str | None:
    """Why a task cannot have a range."""
    streams = {read.name for read in stage.streams}
    partitions = [(name, number) for name, numbers in task.reads.items() for number in numbers]
    if len(partitions) != 1 or partitions[0][0] not in streams:
        return "not of one stream partition alone"
    return "owns keys or leaves some to others" if task.owns or task.filters or task.null_keys else None


def _spans(stage: Stage, name: str) -> Mapping[int, list[Span | None]]:
    """What tasks read of each partition, by where that begins; None for all of it."""
    spans: dict[int, list[Span | None]] = {}
    for task in stage.tasks:
        for partition in task.reads.get(name, ()):
            spans.setdefault(partition, []).append(task.span)
    for of_one in spans.values():
        of_one.sort(key=lambda span: (-1, -1) if span is None else (span.start, span.end))
    return spans


def _make_up(spans: Sequence[Span | None], planned: PlannedPartition) -> bool:
    """Whether each planned offset is in one of the ranges, no offset in two, and no range without any."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(span.start >= span.end for span in known):
        return False
    meeting = all(span.end == following.start for span, following in pairwise(known))
    return meeting and (known[0].start, known[-1].end) == (planned.start, planned.end)
