"""A store whose result tables may lie at an address of their own. Keys, and all who use them, stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial

from partitioning.documents.numbered import numbered
from partitioning.documents.store import Entry, Found, KeyPage, Store
from partitioning.model.tables_at import TABLES, TablesAt, key_of, uri_of, usual
from partitioning.values import replace


class SplitStore:
    """The store at the root of `documents`, with the tables where its own documents say that they lie.

    That is read once, when a table is first asked for: take a new object after a move.
    """

    def __init__(self, documents: Store, open_at: Callable[[str], Store]) -> None:
        self.root, self.documents, self._open_at = documents.root, documents, open_at

    @cached_property
    def tables(self) -> str:
        """The address of the tables. Raises Refused if the document that names it is damaged."""
        named = [each.address for each in numbered(self.documents, TablesAt, key_of)]
        return named[-1] if named else usual(self.root)

    def uri(self, key: str) -> str:
        """The address of an object."""
        return uri_of(self.root, self.tables if key.startswith(TABLES) else "", key)

    def get(self, key: str) -> bytes | None:
        store, inner = self._of(key)
        return store.get(inner)

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        store, inner = self._of(key)
        return store.get_part(inner, start, end, etag)

    def put_new(self, key: str, data: bytes) -> bytes:
        store, inner = self._of(key)
        return store.put_new(inner, data)

    def put(self, key: str, data: bytes) -> Entry:
        store, inner = self._of(key)
        return _named(store.put(inner, data), key, inner)

    def delete(self, key: str) -> None:
        store, inner = self._of(key)
        store.delete(inner)

    def head(self, key: str) -> Entry | None:
        store, inner = self._of(key)
        found = store.head(inner)
        return found and _named(found, key, inner)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        store, inner = self._of(prefix)
        return map(partial(_named, key=prefix, inner=inner), store.list(inner, limit))

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        store, inner = self._of(prefix)
        page = store.page(inner, after.removeprefix(prefix.removesuffix(inner)), limit)
        return KeyPage(tuple(Found(_named(each.entry, prefix, inner), each.stored) for each in page.objects), page.more)

    @cached_property
    def _tables(self) -> Store:
        return self._open_at(self.tables)

    def _of(self, key: str) -> tuple[Store, str]:
        """The store that has an object, or objects that begin so, and the key there."""
        if key.startswith(TABLES) and self.tables != usual(self.root):
            return self._tables, key.removeprefix(TABLES)
        return self.documents, key


def _named(found: Entry, key: str, inner: str) -> Entry:
    """An object by its key here. It was found by `inner` there, which is `key` here."""
    return found if key == inner else replace(found, key=key.removesuffix(inner) + found.key)
