"""Allowance: how many rows a batch may take away from a table, or leave behind of what a step kept."""

from __future__ import annotations

from partitioning.values import Value


class Allowance(Value, frozen=True, omit_defaults=True):
    """Of a table or step that has so many `rows` or more, at most so many `percent`; of those that were `named`, all.

    >>> Allowance().is_too_much(100, 50), Allowance().is_too_much(100, 49), Allowance().is_too_much(99, 0)
    (False, True, False)
    """

    rows: int = 100
    percent: int = 50
    named: tuple[str, ...] = ()

    def is_too_much(self, before: int, after: int) -> bool:
        """Whether it takes too much if there are so many rows before and after."""
        return before >= self.rows and 100 * (before - after) > self.percent * before
