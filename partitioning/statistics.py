"""Statistics: what the last batches read, made and took, by their receipts. Planning may use them, but needs none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partitioning.plan import TaskRef


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What a task took: records and bytes read, and seconds of work, None where they were not measured."""

    records: int
    bytes: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of one batch: the `records` that each stream and step gave, as far as known, and each task's."""

    batch: int
    records: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[TaskRef, TaskFigures] = field(default_factory=dict)
