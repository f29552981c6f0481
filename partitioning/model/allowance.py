"""Allowance: how many rows a batch may remove from a table, or from the state of a step."""

from __future__ import annotations

from partitioning.values import Value


class Allowance(Value, frozen=True, omit_defaults=True):
    """A batch may remove at most `percent` of a table or state that has `rows` rows or more. It may remove all rows of
    those that are `named`.

    >>> Allowance().is_too_much(100, 50), Allowance().is_too_much(100, 49), Allowance().is_too_much(99, 0)
    (False, True, False)
    """

    rows: int = 100
    percent: int = 50
    named: tuple[str, ...] = ()

    def is_too_much(self, before: int, after: int) -> bool:
        """Whether the batch removes too much, given the rows before and after it."""
        return before >= self.rows and 100 * (before - after) > self.percent * before
