"""Locality: where task groups and tasks ran last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partitioning.model.plan import TaskRef


@dataclass(frozen=True, slots=True)
class Locality:
    """Where groups and tasks ran last: location by group number, location by task. What is not in it is unknown."""

    groups: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[TaskRef, str] = field(default_factory=dict)
