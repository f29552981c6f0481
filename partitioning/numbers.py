"""Numbers: the bounds of numbers that users give. They are checked before a number is used."""

from __future__ import annotations

import math

from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.values import Value


class Bound(Value, frozen=True):
    """The range of a number, from `least` to `most`, and why it ends there."""

    least: int
    most: int
    why: str

    def finding(self, value: int, where: str) -> Finding | None:
        """The finding for a number outside the bound; None if it is within.

        >>> print(TASKS.finding(10**9, "--tasks"))
        1,000,000,000 is too large: a plan holds every task, and each one costs time to start
          where: --tasks
          next:  use 100,000 or less
        """
        shown = written(value)
        if value < self.least:
            return Finding.of(Kind.NUMBER, f"{shown} is too small", where, f"use {self.least:,} or more", value=shown)
        if value > self.most:
            what, then = f"{shown} is too large: {self.why}", f"use {self.most:,} or less"
            return Finding.of(Kind.NUMBER, what, where, then, value=shown, most=self.most)
        return None

    def check(self, value: int, where: str) -> int:
        """The number. Raises Refused if it is out of bounds."""
        if finding := self.finding(value, where):
            raise Refused(finding)
        return value


def written(value: int) -> str:
    """A number for people, of however many digits.

    >>> written(-1), written(25_000), written(10**6000)
    ('-1', '25,000', 'a number of about 6,000 digits')
    """
    if value.bit_length() > 1000:
        return f"a number of about {int(value.bit_length() * math.log10(2)):,} digits"
    return f"{value:,}"


_OFFSETS = "offsets have 63 bits"
TASKS = Bound(1, 100_000, "a plan holds every task, and each one costs time to start")
PARTITIONS = Bound(1, 1_000_000, "a plan holds every partition, and brokers have no more")
GROUPS = Bound(1, 100_000, "each task group is a Spark job")
FAN_IN = Bound(2, TASKS.most, "no stage has more tasks")
RECORDS = Bound(1, 2**63 - 1, _OFFSETS)
OFFSET = Bound(0, 2**63 - 1, _OFFSETS)
BYTES = Bound(1, 10**15, "no task reads a petabyte")
MEMORY = Bound(16 * 1000**2, 16 * 1000**4, "no machine has as much")
DAYS = Bound(1, 36_500, "that is a hundred years")
ROWS = Bound(0, 2**63 - 1, "no table has more rows")
PERCENT = Bound(0, 100, "no more than all can go")
OFFENDERS = Bound(0, 20, "a check notes no more")
MINUTES = Bound(0, 525_600, "that is a year")
