"""Outcomes: what a system made of the topics, held against the true join."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bench.noticed.topics import Rows


class Verdict(StrEnum):
    """Whether a system gave the rows of the true join, others, or none."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    NAMED = "refused, named keys"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a join: rows of the true join that are missing, rows that are too many, and what was said; if it
    was refused, what was done then, and what came of that."""

    verdict: Verdict
    missing: int = 0
    many: int = 0
    said: tuple[str, ...] = ()
    done: str = ""
    then: Outcome | None = None

    @classmethod
    def of(cls, found: Rows, true: Rows) -> Outcome:
        """The outcome of a system that gave rows and said nothing."""
        missing, many = (true - found).total(), (found - true).total()
        return cls(Verdict.WRONG if missing or many else Verdict.RIGHT, missing, many)

    @property
    def shown(self) -> str:
        """The outcome in the cell of a table."""
        if self.verdict is Verdict.WRONG:
            counts = ((self.missing, "missing"), (self.many, "too many"))
            return f"{self.verdict}: {', '.join(f'{count:,} {what}' for count, what in counts if count)}"
        return f"{self.verdict}; then {self.then.shown}" if self.then else self.verdict
