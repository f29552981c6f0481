"""Owners: which pipeline a result table belongs to. The properties of the table name it from its first commit on.

An owner is a pipeline's name and its store's id: tables that were copied to another store do not belong to a pipeline
of the same name there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping

from deltalake import CommitProperties, DeltaTable

from partitioning.commands import HandOver
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.model.root_names import STORE_ID
from partitioning.values import Value

# The names of the properties.
PIPELINE, STORE, _EARLIER = "coset.pipeline", "coset.store", "coset.earlier"


class Owner(Value, frozen=True):
    """A pipeline of a store. `store` is the store's id; a store without an id owns nothing."""

    pipeline: str
    store: str

    @classmethod
    def here(cls, store: Store, pipeline: str) -> Owner:
        """A pipeline of this store as an owner. A backfill's owner is its pipeline. Stores nothing."""
        return cls(pipeline_of(pipeline) or pipeline, (store.get(STORE_ID) or b"").decode())

    @classmethod
    def of(cls, store: Store, pipeline: str) -> Owner:
        """The same, and the store gets an id if it has none."""
        return cls(pipeline_of(pipeline) or pipeline, store_id(store))

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table that belongs to it."""
        return {PIPELINE: self.pipeline, STORE: self.store}


def store_id(store: Store) -> str:
    """The id of a store, which gets one if it has none."""
    found = store.get(STORE_ID)
    return (store.put_new(STORE_ID, secrets.token_hex(16).encode()) if found is None else found).decode()


def application(pipeline: str, table: str) -> str:
    """The application whose transactions in a table's log are a pipeline's batches."""
    return f"{pipeline}:{table}"


def owner_of(table: DeltaTable) -> Owner | None:
    """The owner that a table names, None if it names none."""
    properties = table.metadata().configuration
    return Owner(properties[PIPELINE], properties.get(STORE, "")) if PIPELINE in properties else None


def earlier_owners(table: DeltaTable) -> Mapping[str, int]:
    """The pipelines of its store that a table belonged to before, each with the version up to which it did."""
    found: dict[str, int] = json.loads(table.metadata().configuration.get(_EARLIER, "{}"))
    return found


def check_owner(table: DeltaTable, name: str, owner: Owner) -> None:
    """Raise Refused if a table does not belong to `owner`.

    A table of an older version of Coset names no owner. It belongs to the pipeline whose batches its log has. If it has
    no batches and no rows, it belongs to the first pipeline that writes to it.
    """
    named = owner_of(table)
    if named == owner:
        return
    if named is not None:
        whose = " of another store" if named.pipeline == owner.pipeline else f", not to {owner.pipeline!r}"
        raise _refused(table, f"the table belongs to pipeline {named.pipeline!r}{whose}", name, named.pipeline, owner)
    wrote = sorted(who_wrote(table, name, owner))
    if len(wrote) > 1:
        listed = " and ".join(map(repr, wrote))
        raise _refused(table, f"the pipelines {listed} wrote to the table, and it names no owner", name, None, owner)
    if wrote and wrote != [owner.pipeline]:
        what = f"the table belongs to pipeline {wrote[0]!r}, not to {owner.pipeline!r}: its batches are in the log"
        raise _refused(table, what, name, wrote[0], owner)
    if not wrote and table.get_add_actions().num_rows:
        raise _refused(table, "the table has rows that no pipeline wrote", name, None, owner)


def adopt(table: DeltaTable, owner: Owner) -> bool:
    """Make a table without an owner name this one. Returns whether it had none. Raises delta-rs's errors."""
    if owner_of(table) is not None:
        return False
    name_owner(table, owner, {})
    return True


def name_owner(table: DeltaTable, owner: Owner, metadata: dict[str, str], earlier: Iterable[str] = ()) -> None:
    """Make a table name an owner, and these as `earlier` owners up to now, in a commit with this metadata. Raises
    delta-rs's errors, also if anybody has committed to the table since it was read."""
    owners = {**earlier_owners(table), **dict.fromkeys(earlier, table.version())}
    table.alter.set_table_properties(
        owner.properties | ({_EARLIER: json.dumps(owners, sort_keys=True)} if earlier else {}),
        raise_if_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0, custom_metadata=metadata),
    )


def who_wrote(table: DeltaTable, name: str, owner: Owner) -> set[str]:
    """The pipelines whose batches or swaps a log has. Coset 0.1.0 named the pipeline only in its transactions."""
    known = table.transaction_version(application(owner.pipeline, name)) is not None
    return ({owner.pipeline} if known else set()) | {
        entry["coset.pipeline"] for entry in table.history() if "coset.pipeline" in entry
    }


def _refused(table: DeltaTable, what: str, name: str, before: str | None, owner: Owner) -> Refused:
    then = ("write to a table of another name; or, to have it handed over, ", HandOver(name, before, owner.pipeline))
    values = about(table=name, owner=before, pipeline=owner.pipeline)
    return Refused(Finding(Kind.TABLE_OWNER, what, table.table_uri.rstrip("/"), then, values))
