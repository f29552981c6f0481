"""Numbered documents: those of one kind that are put one after the other, without holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from partitioning.documents.document import decode, encode
from partitioning.documents.store import AT_ONCE, at_once
from partitioning.errors import CosetError
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store

D = TypeVar("D", bound=Document)
_LONGEST_NUMBER = 9


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


class NumberedLog(Generic[D]):
    """Documents of one kind in a folder, each of which has all that the next one needs.

    Each is put only if its number is free. A hint names the newest; if it is lost or old, the next numbers are tried.
    Raises the store's errors, and Refused for damaged documents.
    """

    def __init__(self, store: Store, kind: type[D], folder: str) -> None:
        self._store = store
        self._kind = kind
        self._folder = folder

    def get(self, number: int) -> D | None:
        """The document with this number."""
        key = self._key(number)
        data = None if number < 0 else self._store.get(key)
        return None if data is None else decode(self._kind, data, f"{self._store.root}/{key}")

    def newest(self) -> D | None:
        """The newest document. None if there is none."""
        hint = self._hint()
        now = self.get(last_from(hint, self._there))
        # The hint may be wrong.
        return self.get(last_from(-1, self._there)) if now is None and hint >= 0 else now

    def put(self, number: int, document: D) -> bool:
        """Store a document; whether it is the one that has this number."""
        data = encode(document)
        if self._store.put_new(self._key(number), data) != data:
            return False
        # The hint may fail: nothing depends on it.
        with suppress(CosetError):
            self._store.put(f"{self._folder}/newest", b"%d" % number)
        return True

    def _there(self, number: int) -> bool:
        return self._store.head(self._key(number)) is not None

    def _hint(self) -> int:
        text = self._store.get(f"{self._folder}/newest") or b""
        return int(text) if text.isdigit() and len(text) <= _LONGEST_NUMBER else -1

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number}.json"
