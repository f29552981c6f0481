"""Counts: what those who wait are told while something goes through many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Counts:
    """What was counted, one after the other: how many of what there are, and how many were done each time."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str, list[int]]] = []

    @contextmanager
    def __call__(self, total: int, what: str) -> Iterator[Callable[[int], None]]:
        done = list[int]()
        self.told.append((total, what, done))
        yield done.append

    @property
    def ended(self) -> list[str]:
        """Of each count, how many are done in the end."""
        return [f"{sum(done)} of {total} {what}" for total, what, done in self.told]
