"""Schemes: how many tasks a stage gets. Each is a choice of L for the coset rule (see `cosets`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from partitioning.errors import Finding, Refused

_TEXT = re.compile(r"(?P<kind>max|cogroup|elastic|tasks)(?:\((?P<number>-?[0-9]{1,9})\))?")
_NEXT = "use max, cogroup, elastic(F) or tasks(L) with F and L at least 1"


@dataclass(frozen=True, order=True, slots=True)
class Scheme:
    """`max`, `cogroup` (both SAMZA-71), `elastic(F)` (Samza's virtual tasks) or `tasks(L)`.

    >>> print(Scheme.parse("elastic(2)"), Scheme.parse("cogroup"))
    elastic(2) cogroup
    """

    kind: str
    number: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in {"max", "cogroup", "elastic", "tasks"}:
            raise Refused(Finding(f"unknown scheme {self.kind!r}", "scheme", _NEXT))
        if (self.number is None) == (self.kind in {"elastic", "tasks"}):
            raise Refused(Finding(f"scheme {str(self)!r} has the wrong form", "scheme", _NEXT))
        if self.number is not None and self.number < 1:
            raise Refused(Finding(f"{self} asks for {self.number} tasks", "scheme", _NEXT))

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}({self.number})"

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """Read back what `str` printed. Raises Refused for an unknown scheme or a count below 1."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise Refused(Finding(f"unknown scheme {text!r}", "scheme", _NEXT))
        return cls(match["kind"], int(match["number"]) if match["number"] else None)

    def tasks(self, counts: Sequence[int]) -> int:
        """L for streams of these partition counts that meet in one stage.

        SAMZA-71's counts (4 and 8; 8 and 12; 4 and 6):

        >>> MAX.tasks([4, 8]), COGROUP.tasks([8, 12]), COGROUP.tasks([4, 6])
        (12, 4, 2)
        >>> Scheme("elastic", 3).tasks([8, 12]), Scheme("tasks", 24).tasks([8, 12])
        (12, 24)
        """
        if self.kind == "max":
            return sum(counts)
        if self.kind == "tasks":
            assert self.number is not None
            return self.number
        return gcd(*counts) * (self.number or 1)


MAX = Scheme("max")
COGROUP = Scheme("cogroup")
