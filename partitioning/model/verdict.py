"""Verdicts, commits and outcomes: the decision on a batch with the files it names, the receipt of its publication, and
what became of it, in the same words wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import ClassVar, NamedTuple

from msgspec import UNSET, UnsetType

from partitioning.errors import Finding, Refused, Unjudged
from partitioning.kinds import Kind
from partitioning.model.journal import Occasion
from partitioning.model.measures import Measured
from partitioning.model.receipt import Artefact, Role, files_of
from partitioning.model.watermarks import LatestTimes
from partitioning.sections import many
from partitioning.values import Document, Value

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


class Decision(StrEnum):
    """What happens to a batch."""

    PUBLISH = "publish"
    ABANDON = "abandon"


class Judged(Value, frozen=True, tag="judged", tag_field="reason", omit_defaults=True):
    """What the checks found: `records` in `partitions`, `keys` compared (one in `key_sample`), how many `expectations`
    there were and were `met`, and how many accepted offsets are `lost`."""

    records: int
    partitions: int
    keys: int
    key_sample: int
    expectations: int
    met: int
    lost: int = 0

    def __str__(self) -> str:
        kept = "all" if self.met == self.expectations else f"{self.met:,} of"
        lost = f", {many(self.lost, 'offset')} accepted as lost" if self.lost else ""
        sampled = f" (one in {self.key_sample:,})" if self.key_sample > 1 else ""
        return (
            f"{many(self.records, 'record')} in {many(self.partitions, 'stream partition')}, "
            f"{many(self.keys, 'key')} compared{sampled}, {kept} {many(self.expectations, 'expectation')} met{lost}"
        )


class GivenUp(Value, frozen=True, tag="given up", tag_field="reason"):
    """Who gave the batch up, and why, in the user's words."""

    words: str

    def __str__(self) -> str:
        return self.words


class Verdict(Document, frozen=True, omit_defaults=True):
    """The decision on a batch, stored once and never changed, and `why` it was taken.

    `publish` names the exact files, as they were when the checks passed. `abandon` publishes nothing; the next batch
    starts where the one before this ended. `taken` says when and by whom; verdicts of earlier versions omit it.
    `measured` has the figures of result tables that expectations asked for, `times` the latest event times of streams.
    """

    FORMAT: ClassVar[str] = "coset.verdict/4"

    plan: str
    batch: int
    decision: Decision
    attempt: int
    why: Judged | GivenUp
    artefacts: tuple[Artefact, ...]
    taken: Occasion | None = None
    measured: tuple[Measured, ...] = ()
    times: tuple[LatestTimes, ...] | UnsetType = UNSET

    @property
    def latest_times(self) -> tuple[LatestTimes, ...]:
        """The latest event times of the streams that say when their records happened."""
        return self.times if isinstance(self.times, tuple) else ()

    def files_of(self, table: str) -> tuple[Artefact, ...]:
        """The files of a result table: with its rows, and with the keys of those that are replaced."""
        return files_of(self.artefacts, table)

    def rows_of(self, table: str) -> tuple[Artefact, ...]:
        """The files with the rows of a result table."""
        return tuple(artefact for artefact in self.artefacts if (artefact.role, artefact.name) == (Role.TABLE, table))


class TableVersion(Value, frozen=True, order=True):
    """The Delta version that holds a batch's rows."""

    table: str
    version: int


class Commit(Document, frozen=True):
    """The receipt of a publication; rebuilt from the Delta logs if it is missing."""

    FORMAT: ClassVar[str] = "coset.commit/3"

    plan: str
    batch: int
    verdict: str
    tables: tuple[TableVersion, ...]
