"""Coset in a deployment of Airflow: its store, the folder of the Data Docs, and which DAGs are those of a pipeline.
Places: how task groups get to a location.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.configuration import AIRFLOW_HOME, conf

from coset.project.here import enter
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.model.offsets import check_name
from partitioning.model.plan import TaskGroup
from partitioning.values import Value

# The tags of all DAGs of Coset, and of those for backfills.
TAG = "coset"
BACKFILL_TAG = "backfill"
# What the names of a pipeline's backfill DAGs end with.
BACKFILL = "_backfill"
UNDO = "_undo"
# The tag, and the end of the name, of the DAG that verifies a pipeline's tables.
VERIFY_TAG = "verify"
VERIFY = "_verify"


def store_root() -> str:
    """The root of the store. Raises Refused if neither COSET_STORE nor coset.toml names one."""
    root = _variable("COSET_STORE")
    if not root:
        then = "set it, as COSET_STORE=s3://coset"
        raise Refused.of(Kind.STORE_UNNAMED, "no store is named", "environment variable COSET_STORE", then)
    return root


def docs_folder() -> Path:
    """The folder of the Data Docs."""
    return Path(_variable("COSET_DOCS") or Path(AIRFLOW_HOME) / "coset" / "docs")


def _variable(name: str) -> str | None:
    """A variable of this process; else what the environment of the project around the folder of DAGs says of it, which
    a process that reads no DAG file, as the web server, does not know yet."""
    if not os.environ.get(name):
        enter(Path(conf.get("core", "dags_folder")))
    return os.environ.get(name)


def pipeline_of_dag(dag_id: str, tags: Collection[str]) -> str | None:
    """The pipeline of a DAG with these tags. None if it is not one of Coset's.

    >>> pipeline_of_dag("shop_undo", {"coset", "backfill"}), pipeline_of_dag("shop_undo", {"coset"})
    ('shop', 'shop_undo')
    >>> pipeline_of_dag("shop_verify", {"coset", "verify"})
    'shop'
    """
    if TAG not in tags:
        return None
    endings = [*((BACKFILL, UNDO) if BACKFILL_TAG in tags else ()), *((VERIFY,) if VERIFY_TAG in tags else ())]
    ending = next((each for each in endings if dag_id.endswith(each)), "")
    try:
        name = check_name(dag_id.removesuffix(ending), "pipeline")
    except Refused:
        return None
    # A backfill's own name is not a pipeline's.
    return name if pipeline_of(name) is None else None


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
