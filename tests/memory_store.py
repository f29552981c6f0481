"""A store in memory, which behaves as the one in S3 does: tests/behaviour runs over both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import md5
from itertools import islice

from partitioning.documents.store import PAGE_KEYS, Entry, Found, KeyPage


class MemoryStore:
    """Objects that live as long as the process."""

    def __init__(self, root: str = "memory://store") -> None:
        self.root = root
        self._objects: dict[str, bytes] = {}

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def get(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        data = self._objects.get(key)
        is_it = data is not None and etag in (None, _etag(data))
        return data[start:end] if data is not None and is_it and end <= len(data) else None

    def put_new(self, key: str, data: bytes) -> bytes:
        return self._objects.setdefault(key, data)

    def put(self, key: str, data: bytes) -> Entry:
        self._objects[key] = data
        return Entry(key, len(data), _etag(data))

    def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    def head(self, key: str) -> Entry | None:
        data = self._objects.get(key)
        return None if data is None else Entry(key, len(data), _etag(data))

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        for key in sorted(key for key in self._objects if key.startswith(prefix))[:limit]:
            yield Entry(key, len(self._objects[key]), _etag(self._objects[key]))

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        most = min(limit or PAGE_KEYS, PAGE_KEYS)
        some = tuple(islice((entry for entry in self.list(prefix) if entry.key > after), most + 1))
        stored = datetime(2026, 1, 1, tzinfo=UTC)
        return KeyPage(tuple(Found(entry, stored) for entry in some[:most]), len(some) > most)


def _etag(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()
