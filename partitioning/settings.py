"""Settings: how to plan, beside what. The same pipeline runs under any of them with the same results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partitioning.schemes import Scheme

BALANCED_STICKY = "balanced-sticky"


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set for a pipeline without changing its code.

    `scheme` holds for all stages, `schemes` for one: by its name or by that of a step in it. `partitioners`
    are import paths of partitioners, by stage or step; `fan_in` bounds a unifier's inputs, by combine step.
    Tasks are dealt to `groups` task groups in each wave by `grouper`, a built-in name or an import path.
    `limit` bounds the records that are taken from each stream partition.
    """

    scheme: Scheme | None = None
    schemes: Mapping[str, Scheme] = field(default_factory=dict)
    partitioners: Mapping[str, str] = field(default_factory=dict)
    fan_in: Mapping[str, int] = field(default_factory=dict)
    groups: int = 2
    grouper: str = BALANCED_STICKY
    limit: int | None = None

    @classmethod
    def parse(cls, *, scheme: str | None = None, groups: int = 2, limit: int | None = None) -> Settings:
        """Settings from what a command line or an Airflow form holds. Raises Refused for an unknown scheme."""
        return cls(scheme=Scheme.parse(scheme) if scheme else None, groups=groups, limit=limit)


DEFAULTS = Settings()
