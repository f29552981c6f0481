"""Counting: what goes through many rows tells how many of them are done, for whoever waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

# Called with a total and what is counted. Meanwhile what it gives is called with how many more are done.
Counting = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def uncounted(_total: int, _what: str) -> Iterator[Callable[[int], None]]:
    """Nobody waits."""
    yield lambda _more: None


def each_counted(ask: Callable[[A], B], done: Callable[[int], None]) -> Callable[[A], B]:
    """What asks about one, and then says that one more is done."""

    def asked(one: A) -> B:
        answer = ask(one)
        done(1)
        return answer

    return asked
