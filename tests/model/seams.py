"""The seams: where the real code reads a clock, draws a number, begins a thread or leaves Python, and what is there in
a model. All else that the model's actors run is the code as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from coset.batches import planning, publication
from coset.batches.tables import delta, exchanged, logs, owners
from partitioning.documents import document, ledger, s3_store, store, stores
from partitioning.documents.stores import store_at
from partitioning.model.journal import Occasion
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile, Stream
from tests.model import known_delta
from tests.model.client import Ask, Client

BUCKET = "s3://model"
# Keys of the store begin so in the bucket.
PREFIX = "s/"
ROOT = f"{BUCKET}/s"
NOW = 1_790_000_000_000_000_000
COLUMNS = (Column("k", "VARCHAR"), Column("v", "BIGINT"))


class Serial:
    """A pool that does one after the other: the order of what one process asks at once is not looked into."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, ask: Callable[..., Any], about: Iterable[Any]) -> Iterator[Any]:
        return map(ask, about)


class Here:
    """The actor that runs now: its name, and how it asks."""

    name = ""
    ask: Ask


HERE = Here()


def discover(streams: Sequence[Stream], _: Ends = NOTHING, __: object = ()) -> tuple[Discovered, ...]:
    """What has arrived of each stream, by an object that the model's producer replaces."""
    return tuple(_found(stream) for stream in streams)


def _found(stream: Stream) -> Discovered:
    ends = json.loads(store_at(ROOT).get(landed(stream.name)) or b"[]")
    partitions = (
        DiscoveredPartition(
            number, tuple(InputFile(f"{number}/{at}.parquet", 100, f"etag-{at}", at, at + 1) for at in range(end))
        )
        for number, end in enumerate(ends)
    )
    return Discovered(stream.name, COLUMNS, tuple(partitions))


@cache
def decoded(kind: Any, data: bytes, where: str) -> Any:
    """`document.decode`, which gives equal values of the same bytes."""
    return document.decode(kind, data, where)


def landed(stream: str) -> str:
    return f"landed/{stream}"


@contextmanager
def seams() -> Iterator[None]:
    """The real code without clocks, chance, threads, DuckDB and network, until the block ends."""
    clock = SimpleNamespace(time_ns=lambda: NOW, sleep=lambda _: None, monotonic=lambda: 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_store, "_client", lambda: Client(lambda request: HERE.ask(request)))
        patch.setattr(store, "ThreadPoolExecutor", Serial)
        patch.setattr(stores, "ThreadPoolExecutor", Serial)
        patch.setattr(stores, "token_hex", lambda _: HERE.name)
        patch.setattr(owners, "secrets", SimpleNamespace(token_hex=lambda _: f"store-of-{HERE.name}"))
        for module in (delta, exchanged, planning, s3_store):
            patch.setattr(module, "time", clock)
        for module in (delta, s3_store):
            patch.setattr(module, "random", SimpleNamespace(uniform=lambda low, _: low))
        for module in (publication, planning):
            patch.setattr(module, "now", lambda: 0)
            patch.setattr(module, "occasion", lambda _: Occasion(0, 0, HERE.name, "model", ""))
        patch.setattr(planning, "datetime", SimpleNamespace(now=lambda _: datetime(2026, 1, 1, tzinfo=UTC)))
        # It waits between tries. No answer of the model ends too early.
        patch.setattr(s3_store, "_UNCUT", lambda read, *asked: read(*asked))
        patch.setattr(ledger, "decode", decoded)
        known_delta.remember(patch)
        patch.setattr(planning, "discover", discover)
        patch.setattr(planning, "reported", SimpleNamespace(begun=lambda *_: None))
        yield


def enter(name: str, ask: Ask) -> None:
    """Let what follows be the process `name`, which has just begun."""
    HERE.name, HERE.ask = name, ask
    known_delta.committing(name)
    logs._COPIES = logs._Copies()
