"""Errors: refused, conflict, outcome unknown, unreachable.

Each has all findings at once:

    Finding.of(Kind.TABLE_BEHIND, f"it holds batch {newest}", uri, ("restore it, then ", Run(name)), batch=newest)
    raise Refused.of(Kind.NAME, f"there is no stream {name!r}", uri, "correct the name", name=name)

The kind is one of `partitioning/kinds.py`: take the one with the same cause and cure, or add one. The next step is
text, a command of `partitioning/commands.py`, or a tuple of both. Never write a command as text: a backfill, Airflow
and a pipeline's file call it differently. Then follow the figures and names that the sentence is about. Nothing
compares sentences: two findings are equal if kind, place and values are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from partitioning.actors import actor
from partitioning.commands import Repeat, Shown, Then
from partitioning.kinds import Kind
from partitioning.texts import indented, visible
from partitioning.values import Value

Plain = str | int | bool | tuple[str | int | bool, ...] | None
About = tuple[tuple[str, Plain], ...]


class Finding(Value, frozen=True, eq=False):
    """One error: its kind, what is wrong, where, what to do next, and the values it is about.

    >>> print(Finding(Kind.NAME, "no such stream 'flihgts'", "s3://landing/topics", "correct the name"))
    no such stream 'flihgts'
      where: s3://landing/topics
      next:  correct the name
    """

    kind: Kind
    what: str
    where: str
    next: Then
    about: About = ()

    @classmethod
    def of(cls, kind: Kind, what: str, where: str, next: Then, /, **values: object) -> Self:
        """A finding about these values."""
        return cls(kind, what, where, next, about(**values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Finding):
            return NotImplemented
        return (self.kind, self.where, self.about) == (other.kind, other.where, other.about)

    def __hash__(self) -> int:
        return hash((self.kind, self.where, self.about))

    def __str__(self) -> str:
        return self.shown(Shown())

    @property
    def then(self) -> str:
        """The next step, as a terminal shows it for the pipeline's own name."""
        return Shown().says(self.next)

    def shown(self, where: Shown) -> str:
        """The finding, worded for the place where it is shown."""
        return f"{indented(self.what)}\n  where: {visible(self.where)}\n  next:  {visible(where.says(self.next))}"

    def plain(self, where: Shown) -> dict[str, object]:
        """The finding for programs; the next step is worded for the place where it is shown."""
        return {
            "kind": self.kind.value,
            "who": actor(self.kind).value,
            "what": self.what,
            "where": self.where,
            "next": where.says(self.next),
            "about": dict(self.about),
        }


def about(**values: object) -> About:
    """The values that a finding is about, by name: integers as they are, all else as text.

    >>> about(partition="flights-3", missing=[4, 5], batch=1)
    (('batch', 1), ('missing', (4, 5)), ('partition', 'flights-3'))
    """
    return tuple((name, _plain(values[name])) for name in sorted(values))


def _plain(value: object) -> Plain:
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return tuple(_scalar(each) for each in value)
    return _scalar(value) if value is not None else None


def _scalar(value: object) -> str | int | bool:
    # Enum members become text. No document holds a float.
    return value if isinstance(value, int) else str(value)


def docs_unwritten(folder: object, error: OSError) -> Finding:
    """The finding that the Data Docs cannot be written into their folder."""
    what = f"the Data Docs cannot be written: {error.strerror or error}"
    then = ("give `--docs`, or COSET_DOCS, a folder that can be written, then ", Repeat())
    return Finding.of(Kind.LOCAL_FILE, what, str(folder), then, folder=folder)


class CosetError(Exception):
    """The base of all errors that Coset raises on purpose. It holds every finding, not only the first."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings

    @classmethod
    def of(cls, kind: Kind, what: str, where: str, next: Then, /, **values: object) -> Self:
        """An error with one finding, about these values."""
        return cls(Finding.of(kind, what, where, next, **values))

    def shown(self, where: Shown) -> str:
        """All findings, worded for the place where they are shown."""
        return "\n".join(finding.shown(where) for finding in self.findings)


class Refused(CosetError):
    """Raised if input, declaration or data is not acceptable. Nothing was published."""

    exit_code = 3


class Unjudged(Refused):
    """Raised if expectations on a batch could not be evaluated, and no other is unmet. Nothing was published."""

    exit_code = 7


class Unreachable(CosetError):
    """Raised if the store does not answer properly for now. The same command may work later."""

    exit_code = 6


class Conflict(CosetError):
    """Raised if another process stored something different under the same name first."""

    exit_code = 4


class OutcomeUnknown(CosetError):
    """Raised if it is unknown whether a write happened. Running the same command again finds out."""

    exit_code = 5
