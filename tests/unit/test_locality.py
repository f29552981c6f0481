"""Locality: where task groups ran, where we are, and where a group is sent by that."""

from __future__ import annotations

import socket

import pytest

from coset.airflow.places import Place, placed, shared
from partitioning.documents.document import encode
from partitioning.documents.receipts import GroupLocality, locations
from partitioning.errors import Refused
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.receipt import Receipt
from partitioning.model.statistics import Locality
from partitioning.planning.groups.grouping import SizedTask, grouped
from spark_jobs.engine.location import ENVIRONMENT, check_location
from tests.memory_store import MemoryStore

REFS = [TaskRef("views", number) for number in range(6)]
GROUPS = tuple(TaskGroup(number, (*REFS[2 * number : 2 * number + 2],), 0, 0) for number in range(3))
PLAN = Plan("sums", 3, None, "0", (), (), (), GROUPS, 1, "balanced-sticky", (), {})
OLDER = "sums/locality/3/group-0.json"


def ran(**at: str) -> list[Receipt]:
    """The receipts of groups, `g0` and so on, that ran there."""
    return [Receipt("sha256:0", int(group[1:]), 0, (), location=location) for group, location in at.items()]


def test_receipts_say_where_groups_ran_and_what_is_missing_is_unknown() -> None:
    known = locations(MemoryStore(), PLAN, ran(g0="h0", g1="h1", g2="h1"))
    assert known == Locality(
        {0: "h0", 1: "h1", 2: "h1"}, dict(zip(REFS, ("h0", "h0", "h1", "h1", "h1", "h1"), strict=True))
    )
    assert locations(MemoryStore(), PLAN, ran(g0="", g1="")) is None
    assert locations(MemoryStore(), PLAN, ran(g1="h1")) == Locality({1: "h1"}, {REFS[2]: "h1", REFS[3]: "h1"})


def test_a_document_of_an_older_version_says_what_the_receipt_does_not() -> None:
    store = MemoryStore("s3://lake")
    store.put(OLDER, encode(GroupLocality(0, "h0", GROUPS[0].tasks)))
    known = locations(store, PLAN, ran(g0="", g1="h1"))
    assert known is not None
    assert known.groups == {0: "h0", 1: "h1"}
    store.put(OLDER, (store.get(OLDER) or b"").replace(b"h0", b"h1"))
    with pytest.raises(Refused) as caught:
        locations(store, PLAN, ran(g0=""))
    assert caught.value.findings[0].where == f"s3://lake/{OLDER}"


@pytest.mark.parametrize("location", ["", "  ", "h\n0", "h\x000", "x" * 254])
def test_what_cannot_be_printed_or_is_too_long_is_no_location(location: str) -> None:
    with pytest.raises(Refused, match="is no location"):
        check_location(location)


def test_the_environment_says_where_we_are_else_the_host_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "node-7")
    assert ENVIRONMENT.location() == "node-7"
    monkeypatch.delenv("COSET_LOCATION")
    assert ENVIRONMENT.location() == socket.gethostname()


def test_the_next_plan_wants_each_group_where_it_ran_last() -> None:
    tasks = [SizedTask(ref, 1, 1, {}) for ref in REFS]
    where = locations(MemoryStore(), PLAN, ran(g0="h0", g2="h2"))
    made = grouped(tasks, "balanced-sticky", 3, previous=PLAN, locality=where)
    assert [group.location for group in made.groups] == ["h0", None, "h2"]


NODE = "spark.kubernetes.node.selector.kubernetes.io/hostname"
PLACES = {"a": Place("spark_a"), "b": Place(conf={NODE: "b"}), "c": Place("spark_c", {NODE: "c"})}


def group(number: int, location: str | None) -> TaskGroup:
    return TaskGroup(number, (TaskRef("views", number),), 0, 0, location)


@pytest.mark.parametrize("number", range(4))
def test_a_group_goes_where_it_ran_last(number: int) -> None:
    assert placed(group(number, "c"), PLACES) == {"location": "c", "conn_id": "spark_c", "conf": {NODE: "c"}}
    assert placed(group(number, "b"), PLACES) == {"location": "b", "conn_id": "spark_default", "conf": {NODE: "b"}}


@pytest.mark.parametrize("location", [None, "gone"])
def test_groups_that_have_no_place_are_dealt_to_all(location: str | None) -> None:
    assert [placed(group(number, location), PLACES)["location"] for number in range(5)] == ["a", "b", "c", "a", "b"]


def test_without_places_nothing_is_said_of_them() -> None:
    assert placed(group(0, "a"), {}) == {}


@pytest.mark.parametrize("count", range(9))
@pytest.mark.parametrize("most", [1, 2, 3, 8])
@pytest.mark.parametrize("places", [{}, PLACES])
def test_groups_share_tasks_where_there_may_be_no_more(count: int, most: int, places: dict[str, Place]) -> None:
    groups = [group(number, None) for number in range(count)]
    parts = shared(groups, places, most)
    assert sorted(each.group for part in parts for each in part) == list(range(count))
    assert all(len({placed(each, places).get("location") for each in part}) == 1 for part in parts)
    at = [[each for each in groups if placed(each, places).get("location") == place] for place in places or [None]]
    assert len(parts) <= max(most, sum(bool(there) for there in at))
    # As few as can be: with one group less in the longest there would be too many tasks.
    longest = max((len(part) for part in parts), default=0)
    assert longest <= 1 or sum(-(-len(there) // (longest - 1)) for there in at) > most
