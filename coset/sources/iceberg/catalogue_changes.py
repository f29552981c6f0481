"""Changes of tables, and how a catalogue is asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

# Seconds to connect, and between two bytes of an answer: those of the store.
TIMEOUT = 5, 60


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a catalogue is to do to a table, if that is as it is required to be."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


@runtime_checkable
class Together(Protocol):
    """A catalogue that can change several tables at once."""

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Change all of these tables, or none."""


def commit(known: Catalog, changes: Sequence[TableChange]) -> None:
    """Let a catalogue make these changes, at once if it can, and each no more than once. Raises its errors."""
    if isinstance(known, Together):
        known.commit_together(changes)
    else:
        commit_each(changes)


def commit_each(changes: Sequence[TableChange]) -> None:
    """Make changes one after another. PyIceberg's transactions would make one that lost a race again, upon another
    snapshot, and remove files of one whose answer was lost."""
    for change in changes:
        change.table._do_commit(change.updates, change.requirements)
