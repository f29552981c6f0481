"""Locality: where task groups ran, kept as one small document for each batch and group.

It is a hint. A group whose document is missing ran nobody knows where; results never depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from partitioning.documents.document import decode, encode
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.locality import Locality
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store

LONGEST_LOCATION = 253


class LocationIdProvider(Protocol):
    """Says where this process runs: a host, a node, a rack, whatever holds caches and local state.

    That is not who runs: several groups may run at one location, and one group at another each time.
    """

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
        raise Refused(
            Finding(
                Kind.LOCATION,
                f"{location[: LONGEST_LOCATION + 1]!r} is no location",
                "location",
                f"use 1 to {LONGEST_LOCATION} printable characters, as in a host's name",
                about(location=location[: LONGEST_LOCATION + 1]),
            )
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
    """Where the groups and tasks of a plan ran, as far as known; None if that is known of none of them.

    Raises Refused for a document that was not written by `put`.
    """
    ran = [
        decode(GroupLocality, data, f"{store.root}/{key}")
        for key in (_key(plan, group) for group in plan.groups)
        if (data := store.get(key)) is not None
    ]
    if not ran:
        return None
    return Locality(
        {group.group: group.location for group in ran},
        {task: group.location for group in ran for task in group.tasks},
    )


def _key(plan: Plan, group: TaskGroup) -> str:
    return f"{plan.pipeline}/locality/{plan.batch}/group-{group.group}.json"
