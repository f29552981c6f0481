"""Acceptance: somebody lets changes of others to a result table stay. The table's log says up to which version."""

from __future__ import annotations

from deltalake import CommitProperties, DeltaTable, Transaction

from coset.batches.tables.logs import opened_there, opened_whole
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import folder

# What a commit that accepts says up to which version.
ACCEPTED = "coset.accepted"


def accept(store: Store, name: str, version: int, *, who: str, why: str) -> None:
    """Accept all changes of a table up to a version, in its log.

    Raises Refused if there is no such table or version.
    """
    where = folder(store, name)
    with opened_there(store, name) as table:
        if not 0 <= version <= table.version():
            what = f"there is no version {version}: the table has versions 0 to {table.version()}"
            raise Refused.of(Kind.ARGUMENT, what, where, "name one of them", version=version)
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={ACCEPTED: str(version), "coset.who": who, "coset.why": why},
                app_transactions=[Transaction(_application(name), version)],
            ),
        )


def accepted_up_to(table: DeltaTable, name: str) -> int:
    """The version up to which somebody accepted what others did last. -1 if nobody did."""
    version: int | None = table.transaction_version(_application(name))
    return -1 if version is None else version


def accepted_in(store: Store, name: str) -> int:
    """The same of a table of a store; -1 if there is none."""
    with opened_whole(folder(store, name)) as table:
        return -1 if table is None else accepted_up_to(table, name)


def accepting(table: DeltaTable, name: str, version: int | None) -> list[Transaction]:
    """For a commit after which changes are accepted up to this version, if it is another than before; as before if
    None."""
    if version is None or version == accepted_up_to(table, name):
        return []
    return [Transaction(_application(name), version)]


def _application(name: str) -> str:
    return f"{name}:accepted"
