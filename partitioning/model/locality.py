"""Locality: where task groups and tasks ran last."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from partitioning.model.plan import TaskRef
from partitioning.values import Value


class Locality(Value, frozen=True):
    """Where groups and tasks ran last: location by group number, location by task. What is not in it is unknown."""

    groups: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[TaskRef, str] = field(default_factory=dict)
