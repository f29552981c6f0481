"""Changes of what a step keeps: as a pipeline declares them, and as a plan carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from partitioning.model.streams import Column
from partitioning.values import Value


class KeptChange(Value, frozen=True, omit_defaults=True):
    """What a pipeline declares of a step that keeps something and was changed.

    The step continues from what the step `was` called kept. Of the rows that it kept, new columns begin as the SQL
    expressions in `begins` say, by column. `migrate` has such expressions too, and `function` is the import path of a
    function from old rows to new: all rows are written again, once. The step begins `anew` for this reason.
    """

    was: str = ""
    begins: tuple[tuple[str, str], ...] = ()
    migrate: tuple[tuple[str, str], ...] = ()
    function: str = ""
    anew: str = ""

    @property
    def migrates(self) -> bool:
        """Whether all rows are written again."""
        return bool(self.migrate or self.function)

    def since(self, before: KeptChange | None) -> KeptChange:
        """What of it is still to be done, if what was declared `before` is done."""
        if before is None:
            return self
        return KeptChange(
            self.was,
            self.begins,
            tuple(pair for pair in self.migrate if pair not in before.migrate),
            self.function if self.function != before.function else "",
            self.anew if self.anew != before.anew else "",
        )


NO_CHANGE = KeptChange()


class How(StrEnum):
    """How a column of kept rows changes."""

    DROPPED = "dropped"
    WIDENED = "widened"
    BEGINS = "begins"
    MIGRATED = "migrated"


class ColumnChange(Value, frozen=True, omit_defaults=True):
    """A column of what a step keeps that changes in a batch: its name, how, its type before and now, and the SQL that
    makes it of a row that was kept before."""

    name: str
    how: How
    before: str = ""
    now: str = ""
    sql: str = ""

    def __str__(self) -> str:
        """The change in a few words.

        >>> print(ColumnChange("orders", How.BEGINS, "", "BIGINT", "0"))
        orders begins as 0
        """
        match self.how:
            case How.DROPPED:
                return f"{self.name} is dropped"
            case How.WIDENED:
                return f"{self.name} is {self.now}, before {self.before}"
            case How.BEGINS:
                return f"{self.name} begins as {self.sql.replace('NULL', 'null')}"
            case How.MIGRATED:
                return f"{self.name} becomes {self.sql}" if self.sql else f"{self.name} is made by the function"
            case _:
                assert_never(self.how)


class KeptVersion(Value, frozen=True):
    """Rows that a step kept in other columns than now: the `columns` of their files, and the SELECT lists, applied one
    after the other, that make of them what is kept now."""

    columns: tuple[Column, ...]
    readings: tuple[str, ...]


def listed(changes: Sequence[ColumnChange]) -> str:
    """The changes in one sentence's worth of words."""
    return ", ".join(map(str, changes))
