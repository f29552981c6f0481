"""Unifiers: combine what several tasks made for one partition, in levels if the fan-in has a limit."""

from __future__ import annotations


def levels(parts: int, fan_in: int | None) -> tuple[int, ...]:
    """How many unifiers each level has between `parts` and the task that takes the last at most `fan_in`.

    >>> levels(17, 4), levels(4, 4), levels(17, None)
    ((5, 2), (), ())
    """
    widths: list[int] = []
    while fan_in is not None and parts > fan_in:
        parts = -(-parts // fan_in)
        widths.append(parts)
    return tuple(widths)
