"""Unifiers: combine what several tasks made for one partition, in levels if the fan-in has a limit.

The task that reads a partition combines the parts of all M writers. Each of N tasks does so for its own partitions
(Apex: MxN partitioning), or one task for all (Apex: single final unifier). Levels of unifiers come before it only if
the parts exceed the fan-in.
"""

from __future__ import annotations

from itertools import pairwise

from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind


def levels(parts: int, fan_in: int | None) -> tuple[int, ...]:
    """How many unifiers each level has, so that the reader of `parts` parts combines at most `fan_in`.

    >>> levels(17, 4), levels(4, 4), levels(17, None)
    ((5, 2), (), ())

    Raises Refused for no parts, or for a fan-in below 2.
    """
    findings = []
    if parts < 1:
        what = f"{parts} parts cannot be combined"
        findings.append(Finding.of(Kind.DECLARATION, what, "unifiers", "give 1 or more", parts=parts))
    if fan_in is not None and fan_in < 2:
        what = f"a fan-in of {fan_in} combines nothing"
        findings.append(Finding.of(Kind.DECLARATION, what, "unifiers", "use 2 or more", fan_in=fan_in))
    if findings:
        raise Refused(*findings)
    widths: list[int] = []
    while fan_in is not None and parts > fan_in:
        parts = -(-parts // fan_in)
        widths.append(parts)
    return tuple(widths)


def groups(parts: int, width: int) -> tuple[range, ...]:
    """The neighbouring parts of each of `width` unifiers of a level, as evenly as possible.

    Sizes differ by one at most. A unifier of a single part passes it on.

    >>> groups(9, 2)
    (range(0, 5), range(5, 9))
    """
    least, more = divmod(parts, width)
    starts = [number * least + min(number, more) for number in range(width + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(starts))


def unifier_of(part: int, parts: int, width: int) -> int:
    """The group of a part, without making all `groups`.

    >>> [unifier_of(part, 9, 2) for part in range(9)]
    [0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    least, more = divmod(parts, width)
    in_larger = more * (least + 1)
    return part // (least + 1) if part < in_larger else more + (part - in_larger) // least
