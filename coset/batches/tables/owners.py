"""Owners: which pipeline a result table belongs to. Its properties name it, from the commit that makes the table on.

A pipeline is known by its name and its store: tables that were copied to another store are not those of a pipeline
there that happens to have the name.
"""

from __future__ import annotations

import secrets

from deltalake import CommitProperties, DeltaTable

from partitioning.commands import HandOver
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.values import Value

# The names of the properties.
PIPELINE, STORE = "coset.pipeline", "coset.store"
_ID = "store-id"


class Owner(Value, frozen=True):
    """A pipeline of a store, which is known by its id; a store that has none yet owns nothing."""

    pipeline: str
    store: str

    @classmethod
    def here(cls, store: Store, pipeline: str) -> Owner:
        """A pipeline of this store, or that of which this is a backfill. Stores nothing."""
        return cls(pipeline_of(pipeline) or pipeline, (store.get(_ID) or b"").decode())

    @classmethod
    def of(cls, store: Store, pipeline: str) -> Owner:
        """The same; the store is given an id if it has none."""
        found = cls.here(store, pipeline)
        return (
            found if found.store else cls(found.pipeline, store.put_new(_ID, secrets.token_hex(16).encode()).decode())
        )

    @property
    def properties(self) -> dict[str, str]:
        """What a table says that belongs to it."""
        return {PIPELINE: self.pipeline, STORE: self.store}


def application(pipeline: str, table: str) -> str:
    """The application whose transactions in a table's log are a pipeline's batches."""
    return f"{pipeline}:{table}"


def owner_of(table: DeltaTable) -> Owner | None:
    """Whom a table names as its owner, if it names anybody."""
    properties = table.metadata().configuration
    return Owner(properties[PIPELINE], properties.get(STORE, "")) if PIPELINE in properties else None


def check_owner(table: DeltaTable, name: str, owner: Owner) -> None:
    """Raise Refused if a table is not its owner's.

    A table that names no owner, because an older version of Coset made it, is that pipeline's whose batches its log
    has. If it has no rows, it is of whoever comes first.
    """
    named = owner_of(table)
    if named == owner:
        return
    if named is not None:
        whose = " of another store" if named.pipeline == owner.pipeline else f", not to {owner.pipeline!r}"
        raise _refused(table, f"the table belongs to pipeline {named.pipeline!r}{whose}", name, named.pipeline, owner)
    wrote = sorted(_wrote(table, name, owner))
    if len(wrote) > 1:
        listed = " and ".join(map(repr, wrote))
        raise _refused(table, f"the pipelines {listed} wrote to the table, and it names no owner", name, None, owner)
    if wrote and wrote != [owner.pipeline]:
        what = f"the table belongs to pipeline {wrote[0]!r}, not to {owner.pipeline!r}: its batches are in the log"
        raise _refused(table, what, name, wrote[0], owner)
    if not wrote and table.get_add_actions().num_rows:
        raise _refused(table, "the table has rows that no pipeline wrote", name, None, owner)


def adopt(table: DeltaTable, owner: Owner) -> bool:
    """Let a table that names no owner name this one; whether it named none. Raises what delta-rs raises."""
    if owner_of(table) is not None:
        return False
    name_owner(table, owner, {})
    return True


def name_owner(table: DeltaTable, owner: Owner, metadata: dict[str, str]) -> None:
    """Let a table name another owner in a commit with this metadata. Raises what delta-rs raises, also if anybody has
    committed to the table since it was read."""
    table.alter.set_table_properties(
        owner.properties,
        raise_if_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0, custom_metadata=metadata),
    )


def _wrote(table: DeltaTable, name: str, owner: Owner) -> set[str]:
    """The pipelines whose batches or swaps a log has. Coset 0.1.0 named a pipeline in its transactions only."""
    known = table.transaction_version(application(owner.pipeline, name)) is not None
    return ({owner.pipeline} if known else set()) | {
        entry["coset.pipeline"] for entry in table.history() if "coset.pipeline" in entry
    }


def _refused(table: DeltaTable, what: str, name: str, before: str | None, owner: Owner) -> Refused:
    then = (
        "write to a table of another name; or, if it is to be handed over, ",
        HandOver(name, before, owner.pipeline),
    )
    values = about(table=name, owner=before, pipeline=owner.pipeline)
    return Refused(Finding(Kind.TABLE_OWNER, what, table.table_uri.rstrip("/"), then, values))
