"""The server of the model: an S3 server's objects as a value, and what each request makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Any, NamedTuple

from tests.faults import DELETE, PUT, PUT_NEW

WRITES = frozenset((PUT, PUT_NEW, DELETE))


class Request(NamedTuple):
    """A request of an actor: an object's key or the beginning of keys, and what is sent with it."""

    verb: str
    key: str
    data: Any = b""

    def __str__(self) -> str:
        return f"{self.verb} {self.key}"


@dataclass(frozen=True, eq=False, slots=True)
class Objects:
    """All objects of a store, by key. Of two with the same objects there is one."""

    by_key: dict[str, bytes]
    number: int

    def under(self, prefix: str, after: str = "") -> Iterator[tuple[str, bytes]]:
        for key in sorted(key for key in self.by_key if key.startswith(prefix) and key > after):
            yield key, self.by_key[key]


class Server:
    """Every state that the objects of a store were ever in, and what requests make of them."""

    def __init__(self) -> None:
        self._known: dict[frozenset[tuple[str, bytes]], Objects] = {}
        self.empty = self.having({})

    def having(self, by_key: dict[str, bytes]) -> Objects:
        items = frozenset(by_key.items())
        if items not in self._known:
            self._known[items] = Objects(by_key, len(self._known))
        return self._known[items]

    def __len__(self) -> int:
        return len(self._known)

    def act(self, objects: Objects, request: Request) -> tuple[Objects, Any]:
        """The objects after a request, and the answer: an object's bytes, its size and etag, keys with these, or what
        lies where a new object was to be put; None if nothing does."""
        verb, key, data = request
        held = objects.by_key.get(key)
        match verb:
            case "get":
                return objects, held
            case "head":
                return objects, None if held is None else (len(held), etag_of(held))
            case "list":
                after, most = data
                found = [(name, len(each), etag_of(each)) for name, each in objects.under(key, after)]
                return objects, (tuple(found[:most]), len(found) > most)
            case "put-new" if held is not None:
                return objects, False
            case "put" | "put-new":
                return (objects if held == data else self.having({**objects.by_key, key: data})), True
            case "delete":
                left = {name: each for name, each in objects.by_key.items() if name != key}
                return (objects if held is None else self.having(left)), True
            case _:
                raise AssertionError(verb)


@lru_cache(maxsize=1 << 16)
def etag_of(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()
