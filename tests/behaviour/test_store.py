"""Every store behaves alike, in memory, in a folder and in S3, and for processes that race for an object."""

from __future__ import annotations

import uuid
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from coset.batches.sweeping import pipelines_in
from partitioning.documents.store import KeyPage, RememberingStore, Store
from partitioning.documents.stores import check_first_use, store_at
from tests.memory_store import MemoryStore


@pytest.fixture(params=["memory", "remembering", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "remembering":
            return RememberingStore(MemoryStore())
        case "folder":
            return store_at(str(tmp_path / "store"))
    request.getfixturevalue("s3")
    return store_at(f"s3://test/{uuid.uuid4().hex}")


def test_what_was_never_stored_is_none_and_a_new_object_is_its_first_writers(store: Store) -> None:
    assert store.get("a/b.json") is None
    assert store.head("a/b.json") is None
    assert store.put_new("a/b.json", b"first") == b"first"
    assert store.put_new("a/b.json", b"second") == b"first"
    assert store.get("a/b.json") == b"first"


def test_its_first_use_finds_it_sound_and_leaves_nothing_there(store: Store) -> None:
    check_first_use(store)
    assert list(store.list("")) == []


def test_what_is_put_replaces_and_what_is_deleted_is_gone(store: Store) -> None:
    store.put("report.html", b"old")
    stored = store.put("report.html", b"new")
    assert store.get("report.html") == b"new"
    assert store.head("report.html") == stored
    store.put("a/b.json", b"old")
    store.put("a/c.json", b"kept")
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert store.get("a/b.json") is None
    assert [entry.key for entry in store.list("a/")] == ["a/c.json"]


def test_head_and_list_agree_on_size_and_etag(store: Store) -> None:
    store.put_new("a/2.json", b"22")
    store.put_new("a/10.json", b"1010")
    store.put_new("b/1.json", b"")
    listed = list(store.list("a/"))
    assert [(entry.key, entry.size) for entry in listed] == [("a/10.json", 4), ("a/2.json", 2)]
    assert [store.head(entry.key) for entry in listed] == listed
    assert list(store.list("a/", 1)) == listed[:1]
    assert list(store.list("", 5)) == list(store.list(""))


def test_a_page_has_as_many_as_are_asked_for_behind_a_key(store: Store) -> None:
    keys = [f"folder/{number}" for number in range(5)]
    for key in (*keys, "other"):
        store.put(key, b"")
    begun = datetime.now(UTC)
    first, then = store.page("folder/", "", 3), store.page("folder/", "folder/2", 2)
    assert [found.entry.key for found in first.objects] == keys[:3]
    assert [found.entry.key for found in then.objects] == keys[3:]
    assert (first.more, then.more) == (True, False)
    assert [found.entry.key for found in store.page("folder/", "").objects] == keys
    assert list(store.list("folder/", 3)) == [found.entry for found in first.objects]
    assert all(found.stored.tzinfo and found.stored < begun + timedelta(minutes=1) for found in first.objects)
    assert store.page("folder/", "folder/4") == KeyPage((), more=False)


# Not in S3: the server of the tests lists folder by folder, which S3 does not.
@pytest.mark.parametrize("store", ["memory", "folder"], indirect=True)
def test_objects_are_listed_in_the_order_of_their_whole_keys(store: Store) -> None:
    keys = ["a-b/1", "a.b", "a/2", "a/b/1", "a/b0", "a0", "b"]
    for key in reversed(keys):
        store.put(key, b"")
    assert [entry.key for entry in store.list("")] == keys
    for after in keys:
        behind = [key for key in keys if key > after]
        assert [found.entry.key for found in store.page("", after).objects] == behind
        assert [found.entry.key for found in store.page("a/", after).objects] == [k for k in behind if k[:2] == "a/"]


def test_a_part_is_of_the_object_that_has_the_etag(store: Store) -> None:
    store.put("a", b"0123456789")
    there = store.head("a")
    assert there is not None
    assert store.get_part("a", 2, 5, there.etag) == store.get_part("a", 2, 5, None) == b"234"
    assert store.get_part("a", 8, 12, there.etag) is None
    store.put("a", b"abcdefghij")
    assert store.get_part("a", 2, 5, there.etag) is None
    assert store.get_part("b", 0, 1, there.etag) is store.get_part("b", 0, 1, None) is None


def test_an_etag_is_the_digest_of_the_content_wherever_it_lies(store: Store) -> None:
    store.put("a", b"same")
    assert [entry.etag for entry in store.list("a")] == ["51037a4a37730f52c8732586d3aaa316"]


def test_the_pipelines_in_a_store_are_found_whatever_their_names_begin_with(store: Store) -> None:
    names = {"late", "late-2", "late.backfill-0", "late_2", "later", "Late", "2late"}
    for name in names:
        for key in ("plans/0.json", "plans/1.json", "receipts/0/0.json"):
            store.put_new(f"{name}/{key}", b"{}")
    for other in ("docs/index.html", "late-docs/index.html", "store-id"):
        store.put_new(other, b"")
    found = pipelines_in(store)
    assert len(found) == len(names)
    assert set(found) == names


_TOGETHER: list[Barrier] = []


def _meet_at(barrier: Barrier) -> None:
    _TOGETHER.append(barrier)


def _first(args: tuple[str, int, int]) -> list[bytes]:
    """What a writer is told of each key. All writers begin each round together."""
    (root, writer, rounds), (barrier,) = args, _TOGETHER
    store, told = store_at(root), list[bytes]()
    for number in range(rounds):
        barrier.wait()
        told.append(store.put_new(f"key-{number}", b"%d" % writer))
    return told


# In a folder, so many that a store which looks first and writes then is found out.
@pytest.mark.parametrize(("kind", "rounds"), [("folder", 300), ("s3", 30)])
def test_of_racing_processes_one_is_first_and_all_are_told_so(
    kind: str, rounds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        request.getfixturevalue("s3")
    root = str(tmp_path / "store") if kind == "folder" else f"s3://test/{uuid.uuid4().hex}"
    spawned = get_context("spawn")
    with ProcessPoolExecutor(4, spawned, _meet_at, (spawned.Barrier(4),)) as pool:
        told = list(pool.map(_first, [(root, writer, rounds) for writer in range(4)]))
    held = [store_at(root).get(f"key-{number}") for number in range(rounds)]
    assert told == [held] * 4
    assert len(set(held)) > 1, "one writer was always first: they did not race"
    assert len(list(store_at(root).list(""))) == rounds
