"""How next steps are shown on pages and in messages: as commands that act where and how this process was asked to act,
whoever reads them in whichever folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from partitioning.commands import Shown

# Without a command line and without Airflow nobody was asked for anything.
_SHOWN: Callable[[], Shown] = Shown


def shown() -> Shown:
    """How they are shown by what this process knows now."""
    return _SHOWN()


@contextmanager
def shown_as(known: Callable[[], Shown]) -> Iterator[None]:
    """Meanwhile they are shown by what is `known`."""
    global _SHOWN
    before, _SHOWN = _SHOWN, known
    try:
        yield
    finally:
        _SHOWN = before
