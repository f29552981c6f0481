"""Numbered documents: those of one kind that are put one after the other, without holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from partitioning.documents.document import decode
from partitioning.documents.store import AT_ONCE, at_once
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store

D = TypeVar("D", bound=Document)


def numbered(store: Store, kind: type[D], key_of: Callable[[int], str]) -> Iterator[D]:
    """All documents, from number 0 on; the more there are, the more are fetched at once.

    Raises Refused if one is not what was put.
    """
    number, together = 0, 1
    while True:
        keys = [key_of(each) for each in range(number, number + together)]
        for key, data in zip(keys, at_once(store.get, keys), strict=True):
            if data is None:
                return
            yield decode(kind, data, f"{store.root}/{key}")
        number, together = number + together, min(2 * together, AT_ONCE)


def last_from(number: int, there: Callable[[int], bool]) -> int:
    """The last number that follows this one without a hole. It doubles the steps, then halves them.

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
