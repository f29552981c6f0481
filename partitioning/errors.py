"""Errors: refused, conflict, outcome unknown, unreachable.

Each has all findings at once:

    Finding.of(Kind.TABLE_BEHIND, f"it holds batch {newest}", uri, ("restore it, then ", Run(name)), batch=newest)
    raise Refused.of(Kind.NAME, f"there is no stream {name!r}", uri, "correct the name", name=name)

The kind is one of `partitioning/kinds.py`: take the one with the same cause and cure, or add one. The next step is
text, a command of `partitioning/commands.py`, or a tuple of both. Never write a command as text: a backfill, Airflow
and a pipeline's file call it differently. Then follow the figures and names that the sentence is about. Nothing
compares sentences: two findings are equal if kind, place and values are.

What comes once a file, a partition or a task (`Kind.each`) is one finding in an error: with the first few places, and
the number of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from partitioning.commands import Command, Repeat, Shown, Then
from partitioning.kinds import Kind, actor
from partitioning.texts import indented, visible
from partitioning.values import Value, replace

Plain = str | int | bool | tuple[str | int | bool, ...] | None
About = tuple[tuple[str, Plain], ...]
# The values that tell causes of one kind apart; the others say where it is, and how much.
_OF = ("stream", "step", "table", "column", "name", "function", "path", "said", "wrong")
# So many places are shown to people, and told to programs.
_SHOWN, _TOLD = 3, 1_000


class Finding(Value, frozen=True, eq=False, omit_defaults=True):
    """One error: its kind, sentence, place, next step and values. If one cause has it in
    many places, it is that of the first, and `each` has them all.

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
    each: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, kind: Kind, what: str, where: str, next: Then, /, **values: object) -> Self:
        """A finding about these values."""
        return cls(kind, what, where, next, about(**values))

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Finding) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def places(self) -> tuple[Finding, ...]:
        """The finding in each of its places."""
        return self.each or (self,)

    @property
    def _identity(self) -> tuple[object, ...]:
        # In how many places a cause has it changes while they are mended one by one.
        return (self.kind, self._cause) if self.each else (self.kind, self.where, self.about)

    @property
    def _cause(self) -> tuple[object, ...]:
        """What findings of a kind have in common that are one in an error."""
        return tuple((name, value if name in _OF else None) for name, value in self.about)

    def __str__(self) -> str:
        return self.shown(Shown())

    @property
    def steps(self) -> tuple[str | Command, ...]:
        """The next step in its parts: words, and commands."""
        return self.next if isinstance(self.next, tuple) else (self.next,)

    @property
    def then(self) -> str:
        """The next step, as a terminal shows it for the pipeline's own name."""
        return Shown().says(self.next)

    def shown(self, where: Shown) -> str:
        """The finding, worded for the place where it is shown."""
        others = (f"{'' if each.what == self.what else f'{each.what}: '}{each.where}" for each in self.each[1:_SHOWN])
        lines = [
            indented(self.what),
            f"  where: {visible(self.where)}",
            *(f"    - {visible(other)}" for other in others),
        ]
        return "\n".join([*lines, f"  next:  {visible(where.says(self.next))}"])

    def plain(self, where: Shown) -> dict[str, object]:
        """The finding for programs; the next step is worded for the place where it is shown."""
        found = {"kind": self.kind.value, "who": actor(self.kind).value, **self._said(where)}
        if self.each:
            found |= {"count": len(self.each), "each": [each._said(where) for each in self.each[:_TOLD]]}
        return found

    def _said(self, where: Shown) -> dict[str, object]:
        return {"what": self.what, "where": self.where, "next": where.says(self.next), "about": dict(self.about)}


def gathered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, those with one cause as one.

    >>> gone = (Finding.of(Kind.FILE_GONE, "it is gone", f"s3://a/{n}", "restore it", file=n) for n in range(300))
    >>> print(*gathered(gone))
    it is gone
      where: s3://a/0, and 299 more files
        - s3://a/1
        - s3://a/2
      next:  restore it
    """
    causes: dict[object, list[Finding]] = {}
    for finding in findings:
        causes.setdefault((finding.kind, finding._cause) if finding.kind.each else id(finding), []).append(finding)
    return tuple(_as_one(found) if len(found) > 1 else found[0] for found in causes.values())


def _as_one(found: list[Finding]) -> Finding:
    each = tuple(place for finding in found for place in finding.places)
    first, others = found[0], len(each) - 1
    then = (*first.steps, "; so with each of the others")
    return replace(
        first,
        where=f"{each[0].where}, and {others:,} more {first.kind.each}{'s' if others > 1 else ''}",
        next=first.next if all(one.next == first.next for one in found) else then,
        each=each,
    )


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
        self.findings = gathered(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))

    @classmethod
    def of(cls, kind: Kind, what: str, where: str, next: Then, /, **values: object) -> Self:
        """An error with one finding, about these values."""
        return cls(Finding.of(kind, what, where, next, **values))

    def saying(self, change: Callable[[Finding], Finding]) -> Self:
        """The error with its findings changed, in each of their places."""
        return type(self)(*(change(place) for finding in self.findings for place in finding.places))

    def shown(self, where: Shown) -> str:
        """All findings, worded for the place where they are shown."""
        return "\n".join(finding.shown(where) for finding in self.findings)


class Refused(CosetError):
    """Raised if input, declaration or data is not acceptable. Nothing was published."""

    exit_code = 3


def refuse(findings: Iterable[Finding]) -> None:
    """Raise Refused, with all of these findings, if there is one."""
    if found := tuple(findings):
        raise Refused(*found)


@contextmanager
def noting(findings: list[Finding]) -> Iterator[None]:
    """Add the findings of what is refused meanwhile to these, and go on."""
    try:
        yield
    except Refused as refusal:
        findings.extend(refusal.findings)


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
