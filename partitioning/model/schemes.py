"""Schemes: how many tasks a stage gets, and what it does about hot keys. Each is a choice of L for the coset rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from math import gcd

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.numbers import RECORDS, TASKS
from partitioning.values import Value

_TEXT = re.compile(r"(?P<kind>max|cogroup|elastic|tasks|records)(?:\((?P<number>-?[0-9]{1,18})\))?")
_NEXT = "use max, cogroup, elastic(F), tasks(L) or records(N) with F, L and N at least 1"


class SchemeKind(StrEnum):
    """A rule for L. All but `max` and `cogroup` have a number."""

    MAX = "max"
    COGROUP = "cogroup"
    ELASTIC = "elastic"
    TASKS = "tasks"
    RECORDS = "records"


class Scheme(Value, frozen=True, order=True):
    """`max`, `cogroup` (both SAMZA-71), `elastic(F)` (Samza's virtual tasks), `tasks(L)` or `records(N)`.

    Under `records(N)`, each stream partition is split into tasks of at most N records.

    >>> print(Scheme.parse("elastic(2)"), COGROUP)
    elastic(2) cogroup
    """

    kind: SchemeKind
    number: int | None = None

    def __post_init__(self) -> None:
        if (self.number is None) != (self.kind in {SchemeKind.MAX, SchemeKind.COGROUP}):
            raise Refused.of(Kind.SCHEME, f"scheme {str(self)!r} has the wrong form", "scheme", _NEXT, scheme=self)
        if self.number is not None and self.number < 1:
            noun = "records a task" if self.kind is SchemeKind.RECORDS else "tasks"
            raise Refused.of(Kind.SCHEME, f"{self} asks for {self.number} {noun}", "scheme", _NEXT, scheme=self)
        if self.number is not None:
            (RECORDS if self.kind is SchemeKind.RECORDS else TASKS).check(self.number, f"scheme {self.kind}")

    def __str__(self) -> str:
        return str(self.kind.value) if self.number is None else f"{self.kind}({self.number})"

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """Read back what `str` printed. Raises Refused for an unknown scheme or a count below 1."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise Refused.of(Kind.SCHEME, f"unknown scheme {text!r}", "scheme", _NEXT, text=text)
        return cls(SchemeKind(match["kind"]), int(match["number"]) if match["number"] else None)

    def tasks(self, counts: Sequence[int]) -> int:
        """L for streams of these partition counts that meet in one stage.

        SAMZA-71's counts (4 and 8; 8 and 12; 4 and 6):

        >>> MAX.tasks([4, 8]), COGROUP.tasks([8, 12]), COGROUP.tasks([4, 6])
        (12, 4, 2)
        >>> elastic(3).tasks([8, 12]), tasks(24).tasks([8, 12])
        (12, 24)

        Under `records(N)` this is the minimum, as under `max`.
        """
        match self.kind:
            case SchemeKind.MAX | SchemeKind.RECORDS:
                return sum(counts)
            case SchemeKind.TASKS:
                assert self.number is not None
                return self.number
            case SchemeKind.COGROUP | SchemeKind.ELASTIC:
                return gcd(*counts) * self.factor

    @property
    def keeps_keys(self) -> bool:
        """Whether each key has exactly one task. It has not where tasks follow stream partitions."""
        return self.kind not in {SchemeKind.MAX, SchemeKind.RECORDS}

    @property
    def most_records(self) -> int | None:
        """N of `records(N)`, else None."""
        return self.number if self.kind is SchemeKind.RECORDS else None

    @property
    def factor(self) -> int:
        """F of `elastic(F)`, else 1."""
        return self.number if self.kind is SchemeKind.ELASTIC and self.number else 1


MAX = Scheme(SchemeKind.MAX)
COGROUP = Scheme(SchemeKind.COGROUP)


def elastic(factor: int) -> Scheme:
    """`factor` times as many tasks as `cogroup` gives."""
    return Scheme(SchemeKind.ELASTIC, factor)


def tasks(number: int) -> Scheme:
    """This number of tasks, whatever the partition counts are."""
    return Scheme(SchemeKind.TASKS, number)


def records(number: int) -> Scheme:
    """Split each stream partition into as few tasks as keep each at `number` records or fewer."""
    return Scheme(SchemeKind.RECORDS, number)


class HotKeys(StrEnum):
    """`split`: several tasks read ranges of the stream partitions that hold hot keys, where all steps allow it. Of
    joins they take the hot keys only, and copy the other sides; where a step does not allow it, the key has one task
    for itself.

    `own task`: each hot key has a task for itself, beside those of the other keys, whatever the steps do. `leave`: all
    records of a key are in one task, whatever the key weighs.
    """

    SPLIT = "split"
    OWN_TASK = "own task"
    LEAVE = "leave"
