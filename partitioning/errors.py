"""The ways in which Coset says no: refused, conflict, outcome unknown, unreachable."""

from __future__ import annotations

from partitioning.texts import indented, visible
from partitioning.values import Value


class Finding(Value, frozen=True, order=True):
    """One thing that is wrong: what it is, where it was seen, and what to do next.

    >>> print(Finding("no such stream 'flihgts'", "s3://landing/topics", "correct the name"))
    no such stream 'flihgts'
      where: s3://landing/topics
      next:  correct the name
    """

    what: str
    where: str
    then: str

    def __str__(self) -> str:
        return f"{indented(self.what)}\n  where: {visible(self.where)}\n  next:  {visible(self.then)}"


def plan_anew(pipeline: str) -> str:
    """The command that gives up an open batch and plans its records again, as findings name it."""
    return f"`coset replan {pipeline} --why '…'`"


class CosetError(Exception):
    """Root of all errors that Coset raises on purpose; holds every finding, not only the first."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class Refused(CosetError):
    """Raised when the input, the declaration or the data is not acceptable; nothing was published."""

    exit_code = 3


class Unreachable(CosetError):
    """Raised when the store does not answer as it should for now; the same command may work later."""

    exit_code = 6


class Conflict(CosetError):
    """Raised when somebody else has stored something different under the same name first."""

    exit_code = 4


class OutcomeUnknown(CosetError):
    """Raised when a write may or may not have happened; running the same command again settles it."""

    exit_code = 5
