"""Failures: errors on their way between processes, as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec

from partitioning.commands import Then
from partitioning.errors import About, Conflict, CosetError, Finding, OutcomeUnknown, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.model.receipt import TaskReceipt
from partitioning.values import Document, Value


class ErrorKind(StrEnum):
    """Which error it was."""

    ERROR = "error"
    REFUSED = "refused"
    CONFLICT = "conflict"
    OUTCOME_UNKNOWN = "outcome unknown"
    UNREACHABLE = "unreachable"


_ERRORS: Mapping[ErrorKind, type[CosetError]] = {
    ErrorKind.ERROR: CosetError,
    ErrorKind.REFUSED: Refused,
    ErrorKind.CONFLICT: Conflict,
    ErrorKind.OUTCOME_UNKNOWN: OutcomeUnknown,
    ErrorKind.UNREACHABLE: Unreachable,
}


class Done(Value, frozen=True, tag="done", tag_field="outcome"):
    """Tasks completed. `fetched` is how many bytes of state were fetched, `found` how many came from the local
    cache, `location` is that of the process, `code` the digests of the called functions, and `keys` the sample of
    its tasks."""

    receipts: tuple[TaskReceipt, ...]
    fetched: int = 0
    found: int = 0
    location: str = ""
    code: dict[str, str] = msgspec.field(default_factory=dict)
    keys: bytes = b""


class Told(Value, frozen=True, omit_defaults=True):
    """A finding as it is sent between processes. Older versions of Coset sent no kind."""

    what: str
    where: str
    then: Then
    kind: Kind = Kind.OLDER
    about: About = ()

    @classmethod
    def of(cls, finding: Finding) -> Told:
        """A finding, to be sent."""
        return cls(finding.what, finding.where, finding.next, finding.kind, finding.about)

    def finding(self) -> Finding:
        """The finding again."""
        return Finding(self.kind, self.what, self.where, self.then, self.about)


class Failed(Value, frozen=True, tag="failed", tag_field="outcome"):
    """Tasks, or a task group, ended with an error.

    >>> failed = Failed.of(Refused(Finding(Kind.SQL, "it is wrong", "here", "correct it")))
    >>> failed.kind.value, type(failed.error()).__name__
    ('refused', 'Refused')
    """

    kind: ErrorKind
    findings: tuple[Told, ...]

    @classmethod
    def of(cls, error: CosetError) -> Failed:
        """An error as a value."""
        kinds = {error: kind for kind, error in _ERRORS.items()}
        return cls(kinds[type(error)], tuple(Told.of(each) for finding in error.findings for each in finding.places))

    def error(self) -> CosetError:
        """The error again."""
        return _ERRORS[self.kind](*(told.finding() for told in self.findings))


Answer = Done | Failed


class Failure(Document, frozen=True):
    """The error of one run of a task group, for the process that started it."""

    FORMAT: ClassVar[str] = "coset.failure/2"

    plan: str
    group: int
    failed: Failed


def together(failed: Sequence[CosetError]) -> CosetError:
    """Several errors as one: with the findings of all, each once, and the kind with the highest exit code.

    >>> one = Refused(Finding(Kind.SQL, "a", "here", "do"))
    >>> other = Unreachable(Finding(Kind.SPARK, "b", "there", "wait"))
    >>> both = together([one, other, one])
    >>> type(both).__name__, [finding.what for finding in both.findings]
    ('Unreachable', ['a', 'b'])
    """
    findings = list[Finding]()
    for error in failed:
        known = set(findings)
        findings.extend(each for finding in error.findings for each in finding.places if each not in known)
    return type(max(failed, key=lambda error: error.exit_code))(*findings)
