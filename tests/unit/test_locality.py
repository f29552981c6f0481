"""Locality: small documents in the store, and the environment's word for where we are."""

from __future__ import annotations

import socket

import pytest

from partitioning.documents.locations import check_location, put, read
from partitioning.errors import Refused
from partitioning.model.locality import Locality
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.planning.groups.grouping import SizedTask, grouped
from spark_jobs.engine.location import ENVIRONMENT
from tests.memory_store import MemoryStore

REFS = [TaskRef("views", number) for number in range(6)]
GROUPS = tuple(TaskGroup(number, (*REFS[2 * number : 2 * number + 2],), 0, 0) for number in range(3))
PLAN = Plan("sums", 3, None, "0", (), (), (), GROUPS, key_sample=1)


def test_what_was_put_is_read_by_group_and_by_task() -> None:
    store = MemoryStore()
    for group, location in zip(GROUPS, ("h0", "h1", "h1"), strict=True):
        assert put(store, PLAN, group, location) == location
    assert read(store, PLAN) == Locality(
        {0: "h0", 1: "h1", 2: "h1"}, dict(zip(REFS, ("h0", "h0", "h1", "h1", "h1", "h1"), strict=True))
    )
    assert [entry.key for entry in store.list("")] == [f"sums/locality/3/group-{number}.json" for number in range(3)]


def test_the_first_location_of_a_group_in_a_batch_stays() -> None:
    store = MemoryStore()
    put(store, PLAN, GROUPS[0], "h0")
    assert put(store, PLAN, GROUPS[0], "h9") == "h0"


def test_what_is_missing_is_unknown() -> None:
    store = MemoryStore()
    assert read(store, PLAN) is None
    put(store, PLAN, GROUPS[1], "h1")
    assert read(store, PLAN) == Locality({1: "h1"}, {REFS[2]: "h1", REFS[3]: "h1"})


def test_a_damaged_document_is_refused_with_its_address() -> None:
    store = MemoryStore("s3://lake")
    put(store, PLAN, GROUPS[0], "h0")
    key = "sums/locality/3/group-0.json"
    store.put(key, (store.get(key) or b"").replace(b"h0", b"h1"))
    with pytest.raises(Refused) as caught:
        read(store, PLAN)
    assert caught.value.findings[0].where == f"s3://lake/{key}"


@pytest.mark.parametrize("location", ["", "  ", "h\n0", "h\x000", "x" * 254])
def test_what_cannot_be_printed_or_is_too_long_is_no_location(location: str) -> None:
    with pytest.raises(Refused, match="is no location"):
        check_location(location)
    with pytest.raises(Refused, match="is no location"):
        put(MemoryStore(), PLAN, GROUPS[0], location)


def test_the_environment_says_where_we_are_else_the_host_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "node-7")
    assert ENVIRONMENT.location() == "node-7"
    monkeypatch.delenv("COSET_LOCATION")
    assert ENVIRONMENT.location() == socket.gethostname()


def test_the_next_plan_wants_each_group_where_it_ran_last() -> None:
    store = MemoryStore()
    put(store, PLAN, GROUPS[0], "h0")
    put(store, PLAN, GROUPS[2], "h2")
    tasks = [SizedTask(ref, 1, 1, {}) for ref in REFS]
    made = grouped(tasks, "balanced-sticky", 3, previous=PLAN, locality=read(store, PLAN))
    assert [group.location for group in made.groups] == ["h0", None, "h2"]
