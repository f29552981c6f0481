"""Locality: where task groups ran, kept as one small document for each batch and group.

It is a hint. Without its document a group's location is unknown; results never depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from partitioning.documents.document import decode, encode
from partitioning.documents.store import at_once
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.locality import Locality
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store

LONGEST_LOCATION = 253


class LocationIdProvider(Protocol):
    """Says where a task group runs: at a host, a node, a rack, anything that holds caches and local state. If it is not
    `said`, where most tasks of a group ran counts instead.

    It does not say which group runs: several groups may run at one location, and one group at another each time.
    """

    @property
    def said(self) -> bool:
        """Whether the deployment says the location."""

    def location(self) -> str:
        """The location, the same text whenever it is the same place. Raises Refused if it cannot be told."""


class GroupLocality(Document, frozen=True):
    """Where a task group first ran in a batch, and the tasks that ran there."""

    FORMAT: ClassVar[str] = "coset.locality/2"

    group: int
    location: str
    tasks: tuple[TaskRef, ...]


def check_location(location: str) -> str:
    """The location itself, if it is 1 to 253 printable characters, as long as a host's name may be.

    Raises Refused otherwise.

    >>> check_location("rack 7/h2.example")
    'rack 7/h2.example'
    """
    if not location.isprintable() or not location.strip() or len(location) > LONGEST_LOCATION:
        raise Refused.of(
            Kind.LOCATION,
            f"{location[: LONGEST_LOCATION + 1]!r} is no location",
            "location",
            f"use 1 to {LONGEST_LOCATION} printable characters, as in a host's name",
            location=location[: LONGEST_LOCATION + 1],
        )
    return location


def put(store: Store, plan: Plan, group: TaskGroup, location: str) -> str:
    """Store where a group of the plan ran; the answer is where it ran first, by what is stored.

    Raises Refused for what is no location, and whatever the store raises.
    """
    key = _key(plan, group)
    ours = encode(GroupLocality(group.group, check_location(location), group.tasks))
    return decode(GroupLocality, store.put_new(key, ours), f"{store.root}/{key}").location


def read(store: Store, plan: Plan) -> Locality | None:
    """The locations of a plan's groups and tasks, as far as known; None if none is known.

    Raises Refused for a document that `put` did not write.
    """
    keys = [_key(plan, group) for group in plan.groups]
    ran = [
        decode(GroupLocality, data, f"{store.root}/{key}")
        for key, data in zip(keys, at_once(store.get, keys), strict=True)
        if data is not None
    ]
    if not ran:
        return None
    return Locality(
        {group.group: group.location for group in ran},
        {task: group.location for group in ran for task in group.tasks},
    )


def _key(plan: Plan, group: TaskGroup) -> str:
    return f"{plan.pipeline}/locality/{plan.batch}/group-{group.group}.json"
