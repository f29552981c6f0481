"""What is usual for a figure after those before it: pages show it, and expectations go by it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

# What is usual is learned from this many earlier values, and from no fewer than FEWEST.
BEFORE, FEWEST = 30, 5


def usual_from(before: Sequence[float | None]) -> tuple[float, float] | None:
    """What is usual after these values: the middle half of the last thirty, widened on both sides by one and a half
    times its width, as Tukey's fences are, and at least by a tenth of the median; below 0 only if a value was. None
    after fewer than five.

    >>> usual_from([10, 10, 12, 11, None, 9, 10]), usual_from([10] * 5), usual_from([1, 2, 3, 4])
    ((8.875, 11.875), (9.0, 11.0), None)
    """
    known = [value for value in before[-BEFORE:] if value is not None]
    if len(known) < FEWEST:
        return None
    low, median, high = statistics.quantiles(known, n=4, method="inclusive")
    around = max(1.5 * (high - low), abs(median) / 10)
    least = low - around
    return least if min(known) < 0 else max(0.0, least), high + around
