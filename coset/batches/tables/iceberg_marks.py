"""Marks: what an Iceberg table and its snapshots say of the table that they follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

# What an Iceberg table says of the Delta table that it follows: its folder and id; of a snapshot the version and the
# digest of that. Its name tells whether somebody registered it under another one.
FOLDER, ID, NAME, VERSION, COMMIT = "coset.folder", "coset.id", "coset.table", "coset.version", "coset.commit"


def said_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a snapshot follows a version of a Delta table."""
    return VERSION in said_of(snapshot)


def keeps_files(snapshot: Snapshot) -> bool:
    """Whether a snapshot has the files of that before it, as of Spark's rewrite_manifests."""
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415  an extra

    changes = [key for key in said_of(snapshot) if key.startswith(("added-", "deleted-", "removed-"))]
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE and not changes


def version_of(snapshot: Snapshot | None) -> int:
    """The version of its Delta table that a snapshot follows. -1 if it follows none."""
    return int(said_of(snapshot).get(VERSION, -1))
