"""Stores by their roots: which kinds there are, where the tables of one lie, and whether one does what all rests on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from secrets import token_hex

from partitioning.documents.folder_store import FolderStore
from partitioning.documents.store import Entry, Found, KeyPage, Store, numbered
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.root_names import STORE_ID, TABLES, TablesAt, tables_at_key, uri_of_key, usual_tables
from partitioning.model.sources import FOLDER, address_of, why_no_root
from partitioning.values import replace

RACERS = 8
CONDITIONAL = "use a store with conditional writes (If-None-Match), as S3, SeaweedFS and MinIO have"


def check_first_use(store: Store) -> None:
    """Raise Refused if a store without an id lets several create an object, or does not read or list what was written.

    It writes an object and removes it. A store gets its id with its first published batch, or as its tables are to lie
    elsewhere, and is not asked again.
    """
    if store.get(STORE_ID) is not None:
        return
    key, broken = f"{STORE_ID}-probe-{token_hex(8)}", list[str]()
    try:
        told = told_at_once(store, key)
        if len(told) > 1:
            broken.append(several_told(told))
        elif store.put_new(key, b"later") not in told:
            broken.append("an object that was there was replaced, though only a new one was to be created")
        elif store.get(key) not in told:
            broken.append("an object was read otherwise than it was written")
        if not any(entry.key == key for entry in store.list(key)):
            broken.append("an object that was written is not listed")
    finally:
        # Who may not remove it leaves a few bytes there.
        with suppress(CosetError):
            store.delete(key)
    if broken:
        what = f"the store cannot be relied on: {'; '.join(broken)}"
        then = f"{CONDITIONAL}; `coset doctor` tries one"
        raise Refused.of(Kind.STORE_ADDRESS, what, store.root, then, root=store.root)


def told_at_once(store: Store, key: str) -> set[bytes]:
    """The bytes that several who create an object at once are told were stored: one, if the store keeps its word."""
    with ThreadPoolExecutor(RACERS) as pool:
        return set(pool.map(lambda number: store.put_new(key, f"{number}".encode()), range(RACERS)))


def several_told(told: set[bytes]) -> str:
    """How many of them were told that theirs is stored, in words."""
    return f"of {RACERS} who wrote an object at once, {len(told)} were told that theirs is stored"


class SplitStore:
    """The store at the root of `documents`, with the tables where its own documents say that they lie.

    That is read once, when a table is first asked for: take a new object after a move.
    """

    def __init__(self, documents: Store, open_at: Callable[[str], Store]) -> None:
        self.root, self.documents, self._open_at = documents.root, documents, open_at

    @cached_property
    def tables(self) -> str:
        """The address of the tables. Raises Refused if the document that names it is damaged."""
        named = [each.address for each in numbered(self.documents, TablesAt, tables_at_key)]
        return named[-1] if named else usual_tables(self.root)

    def uri(self, key: str) -> str:
        """The address of an object."""
        return uri_of_key(self.root, self.tables if key.startswith(TABLES) else "", key)

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
        if key.startswith(TABLES) and self.tables != usual_tables(self.root):
            return self._tables, key.removeprefix(TABLES)
        return self.documents, key


def _named(found: Entry, key: str, inner: str) -> Entry:
    """An object by its key here. It was found by `inner` there, which is `key` here."""
    return found if key == inner else replace(found, key=key.removesuffix(inner) + found.key)


def store_at(root: str) -> SplitStore:
    """The store at `s3://bucket/prefix` or in a folder, `file:///…` or its whole path. Raises Refused if it is none."""
    return SplitStore(_at(root), _at)


def named_root(store: str | os.PathLike[str]) -> str:
    """The root of a store that is named by its address, or by a folder of the working folder."""
    named = os.fspath(store)
    # A colon in the first part means an address, even an invalid one.
    return named if ":" in named.partition("/")[0] else address_of(os.path.abspath(named))


def _at(root: str) -> Store:
    address = address_of(root).rstrip("/")
    if why := why_no_root(address):
        then = "write it as s3://bucket/prefix, or as the path of a folder"
        raise Refused.of(Kind.STORE_ADDRESS, f"{root!r} {why}", "store", then, root=root)
    if address.startswith(FOLDER):
        return FolderStore(address)
    from partitioning.documents.s3_store import S3Store  # noqa: PLC0415  a trial in a folder does without boto3

    return S3Store(address)
