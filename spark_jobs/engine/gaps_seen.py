"""Gaps seen: finds the missing offsets of a partition while its records are read."""

from __future__ import annotations

import numpy as np

from partitioning.model.offsets import Span
from partitioning.model.receipt import GapsSeen

# How many gaps a receipt lists.
NAMED = 200


class Gaps:
    """The gaps in the offsets from `start` on. All are counted; of many, a regular sample is listed."""

    def __init__(self, start: int) -> None:
        self._expected = start
        self._count = 0
        self._every = 1
        self._some: list[Span] = []

    def note(self, offsets: np.ndarray) -> None:
        """Note offsets that were read, in ascending order."""
        if not len(offsets):
            return
        expected = np.append(self._expected, offsets[:-1] + 1)
        at = np.flatnonzero(offsets > expected)
        numbers = np.arange(self._count, self._count + len(at))
        for place in at[numbers % self._every == 0].tolist():
            self._some.append(Span(int(expected[place]), int(offsets[place])))
        self._count += len(at)
        while len(self._some) > NAMED:
            self._some = self._some[::2]
            self._every *= 2
        self._expected = int(offsets[-1]) + 1

    def seen(self, reached: int) -> GapsSeen:
        """The gaps up to the offset that was reached."""
        last = [Span(self._expected, reached)] if self._expected < reached else []
        return GapsSeen(self._count + len(last), (*self._some, *last))
