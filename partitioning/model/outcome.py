"""Outcomes: what became of an attempt or a batch, in the same words wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from partitioning.errors import Finding, Refused, Unjudged
from partitioning.kinds import Kind
from partitioning.model.verdict import Decision, Verdict
from partitioning.sections import many

# The sign of what was proved with warnings.
WARNED = "!"


class Outcome(StrEnum):
    """What became of an attempt: its checks passed; an expectation was not met; none failed but some could not be
    judged; it was not checked yet; a user gave it up; or a backfill's rows replaced its published ones."""

    PROVED = "proved"
    FAILED = "failed"
    UNJUDGED = "could not be judged"
    UNRUN = "not run"
    GIVEN_UP = "given up"
    BACKFILLED = "backfilled"

    @property
    def sign(self) -> str:
        """A sign that tells it apart without its colour."""
        return _SHOWN[self].sign

    @property
    def colours(self) -> tuple[str, str]:
        """Its colours on a light and on a dark page. Those who see red and green alike tell them apart as well."""
        return _SHOWN[self].light, _SHOWN[self].dark

    @property
    def exit_code(self) -> int:
        """With which `coset report` ends."""
        return _SHOWN[self].exit_code

    @property
    def shown(self) -> str:
        """Sign and words."""
        return f"{self.sign} {self}"

    def of(self, warnings: int) -> str:
        """Sign and words of an attempt with so many warnings, which what was proved does not hide.

        >>> Outcome.PROVED.of(0), Outcome.PROVED.of(2), Outcome.FAILED.of(1)
        ('✓ proved', '! proved, 2 warnings', '✗ failed')
        """
        if not self.is_warned(warnings):
            return self.shown
        return f"{WARNED if self is Outcome.PROVED else self.sign} {self}, {many(warnings, 'warning')}"

    def is_warned(self, warnings: int) -> bool:
        """Whether rows of an attempt with so many warnings are read, or were."""
        return warnings > 0 and self in (Outcome.PROVED, Outcome.BACKFILLED)


class _Shown(NamedTuple):
    sign: str
    light: str
    dark: str
    exit_code: int


_SHOWN = {
    Outcome.PROVED: _Shown("✓", "#00694e", "#3fd1a4", 0),
    Outcome.FAILED: _Shown("✗", "#a93a00", "#ff9a5c", Refused.exit_code),
    Outcome.UNJUDGED: _Shown("?", "#8b2f7f", "#f0a0e4", Unjudged.exit_code),
    Outcome.UNRUN: _Shown("…", "#6b5a00", "#e0cb4c", 8),
    Outcome.GIVEN_UP: _Shown("–", "#555c69", "#a9b1bd", 9),
    Outcome.BACKFILLED: _Shown("↺", "#0b55a5", "#86b8ff", 0),
}


def outcome_of_check(findings: Collection[Finding]) -> Outcome:
    """What a check with these findings says.

    >>> outcome_of_check([]).shown, outcome_of_check([Finding(Kind.EXPECTATION_FAILS, "", "", "")]).shown
    ('✓ proved', '? could not be judged')
    """
    if not findings:
        return Outcome.PROVED
    unjudged = all(finding.kind is Kind.EXPECTATION_FAILS for finding in findings)
    return Outcome.UNJUDGED if unjudged else Outcome.FAILED


def outcome_of_batch(verdict: Verdict | None, failed: Collection[Finding], *, backfilled: bool = False) -> Outcome:
    """What became of a batch. `failed` is what the check of its last attempt found, if that failed; `backfilled` says
    whether readers see a backfill's rows in its place."""
    if verdict is None:
        return outcome_of_check(failed) if failed else Outcome.UNRUN
    match verdict.decision:
        case Decision.ABANDON:
            return Outcome.GIVEN_UP
        case Decision.PUBLISH:
            return Outcome.BACKFILLED if backfilled else Outcome.PROVED
