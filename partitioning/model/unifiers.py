"""Unifiers: combine what several tasks made for one partition, in levels if the fan-in has a limit.

The parts that M tasks wrote of a partition are combined by the task that reads it: each of the N tasks
downstream unifies its own (Apex: MxN partitioning), and one task does if they are gathered (Apex: single
final unifier). Only if the parts are more than the fan-in do levels of unifiers come before it.
"""

from __future__ import annotations

from itertools import pairwise

from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind


def levels(parts: int, fan_in: int | None) -> tuple[int, ...]:
    """How many unifiers each level has between `parts` and the task that takes the last at most `fan_in`.

    >>> levels(17, 4), levels(4, 4), levels(17, None)
    ((5, 2), (), ())

    Raises Refused if there are no parts, or for a fan-in below 2, which combines nothing.
    """
    findings = []
    if parts < 1:
        findings.append(
            Finding(
                Kind.DECLARATION, f"{parts} parts cannot be combined", "unifiers", "give 1 or more", about(parts=parts)
            )
        )
    if fan_in is not None and fan_in < 2:
        findings.append(
            Finding(
                Kind.DECLARATION,
                f"a fan-in of {fan_in} combines nothing",
                "unifiers",
                "use 2 or more",
                about(fan_in=fan_in),
            )
        )
    if findings:
        raise Refused(*findings)
    widths: list[int] = []
    while fan_in is not None and parts > fan_in:
        parts = -(-parts // fan_in)
        widths.append(parts)
    return tuple(widths)


def groups(parts: int, width: int) -> tuple[range, ...]:
    """The neighbouring parts that each of `width` unifiers of a level takes, as evenly as can be.

    Numbers of parts differ by one at most; a unifier of a single part passes it on.

    >>> groups(9, 2)
    (range(0, 5), range(5, 9))
    """
    least, more = divmod(parts, width)
    starts = [number * least + min(number, more) for number in range(width + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(starts))


def unifier_of(part: int, parts: int, width: int) -> int:
    """Which of the `groups` a part is in, without making them all.

    >>> [unifier_of(part, 9, 2) for part in range(9)]
    [0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    least, more = divmod(parts, width)
    in_larger = more * (least + 1)
    return part // (least + 1) if part < in_larger else more + (part - in_larger) // least
