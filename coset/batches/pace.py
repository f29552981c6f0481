"""Pace: when the task groups of a batch may start, and how many run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from partitioning.model.plan import Plan


class Pace(Protocol):
    """Asked before each task group, by threads."""

    def at_once(self, most: int) -> int:
        """How many groups may run at once, where the runner takes so many."""

    def wait(self, plan: Plan, group: int) -> None:
        """Return as soon as the group may start. Raises Refused if none may any more."""

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        """Take note that the group has run; what there is to say of how far all is."""

    def cancel(self) -> None:
        """Let nobody wait any more."""


class Unbound:
    """The pace of a batch that is to be published: as fast as its runner is."""

    def at_once(self, most: int) -> int:
        return most

    def wait(self, plan: Plan, group: int) -> None:
        pass

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        pass
