"""How many cases are tried: few of them by default, all of them in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import settings

# Hypothesis's own number, which a profile that tries all examples has.
ALL = 100
FIFTH = ALL // 5


def examples(number: int) -> int:
    """The share of so many examples of Hypothesis that the profile of this run tries, and one at least."""
    return max(1, number * settings().max_examples // ALL)


def few(cases: Iterable[Any], always: int = 1) -> list[Any]:
    """Parameters of which the first, or so many, are always tried, and the others are marked as `long`.

    >>> [case.marks[0].name for case in few(["plan", "run"])[1:]]
    ['long']
    """
    listed = list(cases)
    rest = (case if isinstance(case, tuple) else (case,) for case in listed[always:])
    return [*listed[:always], *(pytest.param(*case, marks=pytest.mark.long) for case in rest)]


def share(cases: Iterable[Any], always: int = 1) -> list[Any]:
    """Parameters that find much the same, as seeds do: the first, or so many, are always tried, and of the others,
    which are marked as `long`, this profile's share."""
    listed = list(cases)
    return few(listed[:always] + listed[always :: ALL // settings().max_examples], always)


def in_turn(cases: Iterable[Any], ways: Sequence[Any]) -> list[Any]:
    """Parameters of two names: each case in the first way, and, of this profile's share of the cases and marked as
    `long`, in one of the others in turn.

    >>> [getattr(pair, "values", pair) for pair in in_turn("ab", ["max", "tasks(1)", "tasks(2)"])][:3]
    [('a', 'max'), ('b', 'max'), ('a', 'tasks(1)')]
    """
    first, *others = ways
    listed = list(cases)
    return share([*((case, first) for case in listed), *zip(listed, cycle(others))], len(listed))
