"""What is listed is what is new, and costs what is new."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coset.sources.listing import folder, listed
from partitioning.documents.store import PAGE_KEYS, Entry, Found, KeyPage
from tests.memory_store import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Keys(MemoryStore):
    """A store of many keys, which counts what it is asked."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__()
        self.keys, self.requests, self.given = sorted(keys), 0, 0

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        first = bisect_right(self.keys, after)
        last = min(first + min(limit or PAGE_KEYS, PAGE_KEYS), len(self.keys))
        self.requests, self.given = self.requests + 1, self.given + last - first
        objects = tuple(Found(Entry(key, 0, ""), NOW) for key in self.keys[first:last])
        assert all(found.entry.key.startswith(prefix) for found in objects)
        return KeyPage(objects, last < len(self.keys))


def landed(read: Sequence[int], new: Sequence[int]) -> tuple[Keys, Mapping[str, str]]:
    """So many files of each partition were read, and so many are behind them."""
    keys, starts = [], {}
    for number, (before, since) in enumerate(zip(read, new, strict=True)):
        keys += [f"{folder('views', number)}{offset:010}" for offset in range(before + since)]
        if before:
            starts[folder("views", number)] = f"{folder('views', number)}{before - 1:010}"
    return Keys(keys), starts


COUNTS = st.sampled_from([0, 1, 2, 30, 99, 100, 101, 300, 1200])


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=30))
def test_all_that_is_behind_what_was_read_is_listed_and_nothing_else(partitions: list[tuple[int, int]]) -> None:
    store, starts = landed(*zip(*partitions, strict=True))
    behind = [key for key in store.keys if key > starts.get(f"{key.rpartition('/')[0]}/", "")]
    assert [found.entry.key for found in listed(store, "views", starts)] == behind
    assert store.requests <= 2 * len(partitions) + len(behind) / 100 + 5


@pytest.mark.parametrize(
    ("partitions", "read", "new", "requests", "keys"),
    [
        pytest.param(4, 5, 1, 1, 20, id="young"),
        pytest.param(4, 500, 1, 4, 400, id="old"),
        pytest.param(4, 50_000, 1, 4, 400, id="very old"),
        pytest.param(1000, 3, 1, 8, 4000, id="many small partitions"),
        pytest.param(2, 0, 50_000, 104, 100_000, id="all new"),
        pytest.param(2, 50_000, 5000, 19, 11_000, id="much new"),
    ],
)
def test_what_a_listing_costs(partitions: int, read: int, new: int, requests: int, keys: int) -> None:
    store, starts = landed([read] * partitions, [new] * partitions)
    assert len(list(listed(store, "views", starts))) == partitions * new
    assert store.requests <= requests
    assert store.given <= keys


def test_a_burst_in_one_partition_does_not_make_the_others_cost_more() -> None:
    store, starts = landed([0] + [5000] * 10, [5000] + [1] * 10)
    assert len(list(listed(store, "views", starts))) == 5010
    assert store.given <= 5000 + PAGE_KEYS + 10 * 100
