"""Locality: where task groups and tasks ran last."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from partitioning.model.plan import TaskRef
from partitioning.values import Value


class Locality(Value, frozen=True):
    """The location where each group and each task ran last, by number. What is absent is unknown."""

    groups: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[TaskRef, str] = field(default_factory=dict)
