"""Pace: when the task groups of a batch may start, and how many run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from partitioning.model.plan import Plan


class Pace(Protocol):
    """Decides when task groups may start. Threads call it before and after each group."""

    def at_once(self, most: int) -> int:
        """How many groups may run at once. The runner takes `most`."""

    def wait(self, plan: Plan, group: int) -> None:
        """Return when the group may start. Raises Refused if no group may start any more."""

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        """Note that the group has run. Returns sentences on the progress."""

    def cancel(self) -> None:
        """Make all waiting threads return or raise."""


class Unbound:
    """The pace of live batches: as fast as the runner."""

    def at_once(self, most: int) -> int:
        return most

    def wait(self, plan: Plan, group: int) -> None:
        pass

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        pass
