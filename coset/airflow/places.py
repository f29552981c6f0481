"""Places: how task groups get to a location, by a connection or by Spark settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partitioning.model.plan import TaskGroup
from partitioning.values import Value


class Place(Value, frozen=True):
    """A location's Spark, by the name of an Airflow connection, or the settings that ask a shared Spark for the
    location.

    Everybody who sees the DAG sees both, so they must not hold credentials.
    """

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = {}


# Places by their locations.
Places = Mapping[str, Place]


def shared(groups: Sequence[TaskGroup], places: Places, most: int) -> list[list[TaskGroup]]:
    """The groups that each of at most so many tasks of Airflow runs one after the other: few as can be, at one place.

    If there are more places than that, each still has a task.
    """
    by_place = dict[object, list[TaskGroup]]()
    for group in groups:
        by_place.setdefault(placed(group, places).get("location"), []).append(group)
    size = max(-(-len(groups) // most), 1)
    while size < len(groups) and sum(-(-len(there) // size) for there in by_place.values()) > most:
        size += 1
    return [there[first : first + size] for there in by_place.values() for first in range(0, len(there), size)]


def placed(group: TaskGroup, places: Places) -> dict[str, Any]:
    """The arguments with which a group's operator runs it at its place. Empty if there are no places.

    The place is where the group ran last. If it never ran, or that place is gone, the group's number chooses one.
    """
    if not places:
        return {}
    location = group.location
    if location is None or location not in places:
        location = sorted(places)[group.group % len(places)]
    place = places[location]
    return {"location": location, "conn_id": place.conn_id, "conf": dict(place.conf)}
