"""Places: how the task groups of a location get there, each through a connection or with Spark settings of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partitioning.model.plan import TaskGroup
from partitioning.values import Value


class Place(Value, frozen=True):
    """A location's own Spark, by the name of an Airflow connection, or the settings that ask a common one for it.

    Both may be seen by everybody who sees the DAG: neither is for credentials.
    """

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = {}


# Places by their locations.
Places = Mapping[str, Place]


def placed(group: TaskGroup, places: Places) -> dict[str, Any]:
    """The arguments by which a group's operator runs it where it is to run; none if there are no places.

    That is where the group ran last. If it never ran, or that place is gone, its number says which one it is.
    """
    if not places:
        return {}
    location = group.location
    if location is None or location not in places:
        location = sorted(places)[group.group % len(places)]
    place = places[location]
    return {"location": location, "conn_id": place.conn_id, "conf": dict(place.conf)}
