"""Where the task groups of a batch ran, which the next plan goes by.

It is a hint. What is not known of a group changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from partitioning.documents.document import decode
from partitioning.documents.store import at_once
from partitioning.model.locality import Locality
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Receipt
from partitioning.values import Document

if TYPE_CHECKING:
    from partitioning.documents.store import Store


class GroupLocality(Document, frozen=True):
    """Where a task group first ran in a batch, and the tasks that ran there. Versions before 0.3.0 stored it beside
    each receipt."""

    FORMAT: ClassVar[str] = "coset.locality/2"

    group: int
    location: str
    tasks: tuple[TaskRef, ...]


def locations(store: Store, plan: Plan, receipts: Iterable[Receipt]) -> Locality | None:
    """The locations of a plan's groups and tasks, by their receipts; None if none is known.

    Raises Refused for a damaged document of an older version.
    """
    said = {receipt.group: receipt.location for receipt in receipts}
    older = [group for group, location in said.items() if not location]
    found = said | dict(zip(older, at_once(lambda group: _of_older_version(store, plan, group), older), strict=True))
    known = {group: location for group, location in found.items() if location}
    tasks = {task: known[group.group] for group in plan.groups if group.group in known for task in group.tasks}
    return Locality(known, tasks) if known else None


def _of_older_version(store: Store, plan: Plan, group: int) -> str:
    key = f"{plan.pipeline}/locality/{plan.batch}/group-{group}.json"
    data = store.get(key)
    return "" if data is None else decode(GroupLocality, data, f"{store.root}/{key}").location
