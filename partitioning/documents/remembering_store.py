"""A store for one piece of work, which fetches a document that stays as it was put only once, and none of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from partitioning.documents.store import Entry, KeyPage, Store
from partitioning.model.root_names import STORE_ID

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
