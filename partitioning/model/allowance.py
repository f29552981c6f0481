"""Allowances: how many bad records of a stream a batch may set aside, and how many rows it may remove from a table, or
from the state of a step.
"""

from __future__ import annotations

import re
from decimal import Decimal

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.values import Value

REFUSE = "refuse"
_POLICY = re.compile(
    r"set aside(?: up to (?:(?P<records>\d{1,9})|(?P<percent>\d{1,3}(?:\.\d{1,4})?) ?%|"
    r"(?P<records_or>\d{1,9}) or (?P<or_percent>\d{1,3}(?:\.\d{1,4})?) ?%))?"
)
_MILLION = 1_000_000


class SetAside(Value, frozen=True, omit_defaults=True):
    """A batch sets records aside that cannot be used, up to so many `records` of a stream, or `millionths` of those
    that it reads of it, whichever is more. Without either, any number.

    >>> SetAside(10, 1000).allows(12, of=20_000), SetAside(10, 1000).allows(10, of=50), SetAside(10).allows(11, of=99)
    (True, True, False)
    >>> SetAside().allows(99, of=99)
    True
    """

    records: int | None = None
    millionths: int | None = None

    def allows(self, count: int, of: int) -> bool:
        """Whether a batch may set `count` records of a stream aside, if it reads so many of it."""
        if self.records is None and self.millionths is None:
            return True
        return count <= (self.records or 0) or count * _MILLION <= of * (self.millionths or 0)

    def __str__(self) -> str:
        """As it is declared.

        >>> print(SetAside(), SetAside(10), SetAside(millionths=1000), SetAside(10, 1000), sep="; ")
        set aside; set aside up to 10; set aside up to 0.1 %; set aside up to 10 or 0.1 %
        """
        limits = [] if self.records is None else [str(self.records)]
        if self.millionths is not None:
            limits.append(f"{self.millionths / 10_000:g} %")
        return f"set aside up to {' or '.join(limits)}" if limits else "set aside"


def limit(text: str) -> SetAside:
    """The rule that `str` gives for a `SetAside`."""
    return bad_records(text, "bad_records") or SetAside(0)


def bad_records(text: str, where: str) -> SetAside | None:
    """What a stream's `bad_records=` says. None if the batch is refused. Raises Refused for other words.

    >>> print(bad_records("refuse", "views"), bad_records("set aside up to 10 or 0.1 %", "views"))
    None set aside up to 10 or 0.1 %
    """
    if text == REFUSE:
        return None
    match = _POLICY.fullmatch(text) if isinstance(text, str) else None
    if match:
        records, percent = match["records"] or match["records_or"], match["percent"] or match["or_percent"]
        millionths = int(Decimal(percent) * 10_000) if percent else None
        if millionths is None or millionths <= _MILLION:
            return SetAside(int(records) if records else None, millionths)
    then = f'use "{REFUSE}", "set aside", or "set aside up to 10", "… 0.1 %" or "… 10 or 0.1 %"'
    raise Refused.of(Kind.DECLARATION, f"unknown rule for bad records {text!r}", where, then, bad_records=str(text))


class Allowance(Value, frozen=True, omit_defaults=True):
    """A batch may remove at most `percent` of a table or state that has `rows` rows or more. It may remove all rows of
    those that are `named`.

    >>> Allowance().is_too_much(100, 50), Allowance().is_too_much(100, 49), Allowance().is_too_much(99, 0)
    (False, True, False)
    """

    rows: int = 100
    percent: int = 50
    named: tuple[str, ...] = ()

    def is_too_much(self, before: int, after: int) -> bool:
        """Whether the batch removes too much, given the rows before and after it."""
        return before >= self.rows and 100 * (before - after) > self.percent * before
