"""Every store behaves alike: one suite over those in memory, in a folder and in S3."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from partitioning.documents.store import Page, Store
from partitioning.documents.stores import store_at
from tests.memory_store import MemoryStore


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "folder":
            return store_at(str(tmp_path / "store"))
    request.getfixturevalue("s3")
    return store_at(f"s3://test/{uuid.uuid4().hex}")


def test_what_was_never_stored_is_none(store: Store) -> None:
    assert store.get("a/b.json") is None
    assert store.head("a/b.json") is None


def test_the_first_writer_of_a_new_object_wins_and_the_second_is_told_what_is_there(store: Store) -> None:
    assert store.put_new("a/b.json", b"first") == b"first"
    assert store.put_new("a/b.json", b"second") == b"first"
    assert store.get("a/b.json") == b"first"


def test_a_plain_put_replaces(store: Store) -> None:
    store.put("report.html", b"old")
    store.put("report.html", b"new")
    assert store.get("report.html") == b"new"


def test_what_is_deleted_is_gone_and_may_be_deleted_again(store: Store) -> None:
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
    assert store.page("folder/", "folder/4") == Page((), more=False)
