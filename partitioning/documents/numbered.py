"""Numbered documents: those of one kind that are put one after the other, without holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from partitioning.documents.document import decode
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store

D = TypeVar("D", bound=Document)


def numbered(store: Store, kind: type[D], key_of: Callable[[int], str]) -> Iterator[D]:
    """All that there are, from number 0 on. Raises Refused if one is not what was put."""
    number = 0
    while (data := store.get(key_of(number))) is not None:
        yield decode(kind, data, f"{store.root}/{key_of(number)}")
        number += 1


def last_from(number: int, there: Callable[[int], bool]) -> int:
    """The last of those that follow this one without a hole, found by doubling and then halving the steps.

    >>> last_from(-1, lambda number: number < 7), last_from(6, lambda number: number < 7)
    (6, 6)
    """
    step = 1
    while there(number + step):
        number, step = number + step, 2 * step
    while step > 1:
        step //= 2
        number += step if there(number + step) else 0
    return number
