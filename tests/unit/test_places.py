"""Places: where a task group is sent, by where it ran last and by what there is now."""

from __future__ import annotations

import pytest

from coset.airflow.places import Place, placed, shared
from partitioning.model.plan import TaskGroup, TaskRef

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
