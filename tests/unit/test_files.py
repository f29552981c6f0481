"""A store for one piece of work: what it fetches once, and what it asks for each time; its files for PyArrow."""

from __future__ import annotations

from hashlib import md5, sha256
from pathlib import Path

import pytest

from coset.sources.files import Files, NewFile
from partitioning.documents.store import RememberingStore
from partitioning.documents.stores import store_at
from tests.memory_store import MemoryStore

STAY = (
    "store-id", "p/plans/3.json.gz", "p/verdicts/3.json", "p/commits/3.json", "p/receipts/3/attempt-0/group-1.json",
    "p/receipts/3/attempt-0/failed.json", "p/journal/3/attempt-0/audit.json", "p/forgets/3.json", "p/swaps/3.json",
    "p/swapped/3.json", "p.backfill-3/backfill.json",
)  # fmt: skip
OWN = ("p/audits/3/attempt-0/tables.zip", "p/audits/3/attempt-0/judgement.json", "p/docs/batch-3-attempt-0.html")
CHANGE = (
    "p/turns/3/check.json",
    "p/docs/index.json",
    "docs/pipelines/p.json",
    *OWN,
    "p/incidents/newest",
    "p/swept.json",
    "p.backfill-3/comparison.json",
    # Tables of such names.
    "tables/plans/data/plan-3/attempt-0-1/a.parquet",
    "tables/plans/_delta_log/00000000000000000003.json",
)


@pytest.mark.parametrize("key", STAY)
def test_a_document_that_stays_is_fetched_once(key: str) -> None:
    there = MemoryStore()
    there.put(key, b"first")
    store = RememberingStore(there)
    assert store.get(key) == b"first"
    there.put(key, b"as nobody does")
    assert store.get(key) == b"first"
    assert RememberingStore(there).get(key) == b"as nobody does"


@pytest.mark.parametrize("key", STAY)
def test_what_a_put_returns_is_known_whoever_was_first(key: str) -> None:
    there = MemoryStore()
    there.put_new(key, b"another's")
    store = RememberingStore(there)
    assert store.put_new(key, b"ours") == b"another's"
    there.delete(key)
    assert store.get(key) == b"another's"


@pytest.mark.parametrize("key", STAY)
def test_a_document_that_is_not_there_is_asked_for_again(key: str) -> None:
    there = MemoryStore()
    store = RememberingStore(there)
    assert store.get(key) is None
    there.put_new(key, b"another's, since")
    assert store.get(key) == b"another's, since"


@pytest.mark.parametrize("key", CHANGE)
def test_what_may_change_is_asked_for_each_time(key: str) -> None:
    there = MemoryStore()
    store = RememberingStore(there)
    assert store.put_new(key, b"first") == b"first"
    there.put(key, b"second")
    assert store.get(key) == b"second"
    there.delete(key)
    assert store.get(key) is None


@pytest.mark.parametrize("key", OWN)
def test_what_this_process_wrote_of_its_attempt_is_not_fetched(key: str) -> None:
    there = MemoryStore()
    store = RememberingStore(there)
    store.put(key, b"ours")
    there.delete(key)
    assert store.get(key) == b"ours"
    assert RememberingStore(there).get(key) is None


@pytest.mark.parametrize("key", STAY)
def test_what_this_process_replaces_or_removes_is_not_known_any_more(key: str) -> None:
    store = RememberingStore(MemoryStore())
    store.put_new(key, b"first")
    store.put(key, b"second")
    assert store.get(key) == b"second"
    store.delete(key)
    assert store.get(key) is None


@pytest.mark.parametrize("most", [0, 5, 6, 100])
def test_a_new_file_is_created_once_it_is_larger_than_what_is_held(tmp_path: Path, most: int) -> None:
    path, files = tmp_path / "new", Files()
    new = NewFile(lambda: files.create(f"file://{path}"), most)
    for part in (b"ab", b"", b"cdef"):
        assert new.write(part) == len(part)
    held = new.end()
    assert (held, path.exists()) == ((b"abcdef", False) if most >= 6 else (None, True))
    assert (held or path.read_bytes(), new.size) == (b"abcdef", 6)
    assert new.digest.hexdigest() == sha256(b"abcdef").hexdigest()


def test_what_was_written_has_the_size_and_the_etag_that_the_store_has(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/new"
    answer, new, size, etag = Files().written(uri, lambda sink: sink.write(b"abcdef"))
    there = store_at(str(tmp_path)).head("new")
    assert there is not None
    assert (answer, new.size, size, etag) == (6, 6, there.size, there.etag)


def test_a_small_file_is_fetched_as_a_whole_if_it_is_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"abcdef")
    uri, etag, files = f"file://{tmp_path}/there", md5(b"abcdef", usedforsecurity=False).hexdigest(), Files()
    whole = files.whole(uri, 6, etag, 6)
    assert whole is not None
    assert whole.read() == b"abcdef"
    assert files.whole(uri, 6, etag, 5) is None
    assert files.whole(uri, 6, "another", 6) is None
    assert files.whole(uri, 7, etag, 7) is None
    assert files.whole(f"{uri}-not", 6, etag, 6) is None
