"""Outcomes: what became of an attempt or a batch, in the same words wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.verdict import Decision, Verdict


class Outcome(StrEnum):
    """Its checks passed; an expectation was not met; no expectation is known to be unmet but some could not be judged;
    it was not checked yet; somebody gave it up; or it was published and a backfill's rows have replaced its own."""

    PROVED = "proved"
    FAILED = "failed"
    UNJUDGED = "could not be judged"
    UNRUN = "not run"
    GIVEN_UP = "given up"
    BACKFILLED = "backfilled"

    @property
    def sign(self) -> str:
        """A sign that tells it apart without its colour."""
        return _SIGNS[self]

    @property
    def shown(self) -> str:
        """Sign and words."""
        return f"{self.sign} {self}"


_SIGNS = {
    Outcome.PROVED: "✓",
    Outcome.FAILED: "✗",
    Outcome.UNJUDGED: "?",
    Outcome.UNRUN: "…",
    Outcome.GIVEN_UP: "–",
    Outcome.BACKFILLED: "↺",
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
