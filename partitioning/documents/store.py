"""The store's port: objects under one root, wherever they lie. `stores.store_at` opens the one that a root names.
Numbered documents: put one after the other, without holes.

A store for one piece of work remembers the documents that stay as they were put.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Generic, Protocol, TypeVar

from partitioning.documents.document import decode, encode
from partitioning.errors import CosetError
from partitioning.model.root_names import STORE_ID
from partitioning.values import Document, Value

A = TypeVar("A")
B = TypeVar("B")

# No store gives more at once.
PAGE_KEYS = 1000
# So many requests of one process are under way together: an answer takes some hundredths of a second, whatever it has.
AT_ONCE = 16


def at_once(ask: Callable[[A], B], about: Sequence[A]) -> list[B]:
    """The answer about each, in their order. Several are asked at once; the first error is raised.

    >>> at_once(str.upper, ["a", "b"])
    ['A', 'B']
    """
    if len(about) < 2:
        return [ask(one) for one in about]
    with ThreadPoolExecutor(min(AT_ONCE, len(about))) as pool:
        return list(pool.map(ask, about))


class Entry(Value, frozen=True, order=True):
    """An object in a listing: its key below the store's root, its size and its etag."""

    key: str
    size: int
    etag: str


class Found(Value, frozen=True):
    """An object in a listing, and when it was stored."""

    entry: Entry
    stored: datetime


class KeyPage(Value, frozen=True):
    """A part of a listing, by key, and whether there is `more` behind it."""

    objects: tuple[Found, ...]
    more: bool


# How the folder of a task's run begins, below that of its batch.
ATTEMPT = "/attempt-"


class Store(Protocol):
    """Objects under one root. Keys are relative to it; `root` is its URI."""

    root: str

    def uri(self, key: str) -> str:
        """The address of an object."""

    def get(self, key: str) -> bytes | None:
        """The object, or None if there is none."""

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        """The bytes [start, end) of the object, or None if there is none that has them, or none of a given etag."""

    def put_new(self, key: str, data: bytes) -> bytes:
        """Store `data` if the key is free; return what is stored, ours or what another stored before."""

    def put(self, key: str, data: bytes) -> Entry:
        """Store `data`, replacing what was there, and return its size and etag: for files whose key nobody else has,
        and for reports, which decide nothing."""

    def delete(self, key: str) -> None:
        """Remove the object, if it is there."""

    def head(self, key: str) -> Entry | None:
        """The object's size and etag, or None if there is none."""

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        """The objects whose keys start with `prefix`, by key; the first `limit` of them if there are more.

        What was decided never rests on it: it is read by name. Discovery does, and refuses what has gaps. It may
        confirm that a file is as its receipt says; before one is refused, it is asked for by its name.
        """

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        """Some of the objects whose keys start with `prefix` and are greater than `after`, by key.

        A page has at most `limit` objects, and never more than `PAGE_KEYS`.
        """


def listed(store: Store, keys: Iterable[str]) -> set[Entry]:
    """The entries of the folders of files that tasks wrote, by listings, as far as these take no more requests than the
    files."""
    folders = Counter(key.partition(ATTEMPT)[0] + ATTEMPT for key in keys)
    found = (store.list(folder, PAGE_KEYS * count) for folder, count in folders.items() if count > 1)
    return set(chain.from_iterable(found))


# Documents that are put if absent, and neither changed nor removed: whoever has one has what counts.
_STAYS = re.compile(
    rf"{STORE_ID}|[^/]+/(?:plans|receipts|verdicts|commits|journal|forgets|swaps|swapped)/[0-9]+[./].*|[^/]+/backfill\.json"
)
# What the process that works on an attempt writes of it; any other would write the same.
_OWN = re.compile(
    r"[^/]+/(?:audits/[0-9]+/attempt-[0-9]+/(?:[a-z]+\.(?:zip|json)|keys-[0-9a-f]+\.arrow)"
    r"|docs/batch-[0-9]+-attempt-[0-9]+\.html)"
)


class RememberingStore:
    """The same store, for one process that does one piece of work, as on a batch. Take a new one for other work.

    That there is no such document is never remembered: another process may put it at any time.
    """

    def __init__(self, store: Store) -> None:
        self.root, self._store = store.root, store
        self._known = dict[str, bytes]()

    def get(self, key: str) -> bytes | None:
        if key not in self._known and (found := self._store.get(key)) is not None:
            return self._remembered(key, found)
        return self._known.get(key)

    def put_new(self, key: str, data: bytes) -> bytes:
        return self._remembered(key, self._store.put_new(key, data))

    def put(self, key: str, data: bytes) -> Entry:
        self._known.pop(key, None)
        put = self._store.put(key, data)
        if _OWN.fullmatch(key):
            self._known[key] = data
        return put

    def delete(self, key: str) -> None:
        self._known.pop(key, None)
        self._store.delete(key)

    def uri(self, key: str) -> str:
        return self._store.uri(key)

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        return self._store.get_part(key, start, end, etag)

    def head(self, key: str) -> Entry | None:
        return self._store.head(key)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        return self._store.list(prefix, limit)

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        return self._store.page(prefix, after, limit)

    def _remembered(self, key: str, data: bytes) -> bytes:
        if _STAYS.fullmatch(key):
            self._known[key] = data
        return data


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
