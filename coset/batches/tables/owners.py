"""Owners: which pipeline a result table belongs to. The properties of the table name it from its first commit on.
Rules: demands of writers, as far as Coset does not ensure them.

An owner is a pipeline's name and its store's id: tables that were copied to another store do not belong to a pipeline
of the same name there.

Rules of a table: what its log demands of writers, as far as Coset does not ensure it. Files are committed as tasks
wrote them, so nothing would check their rows against a constraint of the table.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping

from deltalake import CommitProperties, DeltaTable, Field

from coset.batches.tables.live_files import VARIANTS, VECTORS
from partitioning.commands import HandOver, Repeat, Then
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.model.root_names import STORE_ID
from partitioning.values import Value
from spark_jobs.tables.table_schema import RESIDUE

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


_CHECK = "delta.constraints."
_APPEND_ONLY = "delta.appendOnly"
_MAPPING = "delta.columnMapping.mode"
# Features whose demands are checked below, cannot be broken by a commit of whole files, or are kept by delta-rs.
_KEPT = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "changeDataFeed", "timestampNtz"),
    *("v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp", VARIANTS),
}
# Metadata of a column with demands on its values.
_OF_COLUMNS = ("delta.generationExpression", "delta.invariants", "delta.identity.start", "__CHAR_VARCHAR_TYPE_STRING")


def check_rules(table: DeltaTable, *, takes: bool) -> None:
    """Raise Refused with all findings on rules that a commit breaks or may break.

    `takes` says whether the commit removes rows or only adds some.
    """
    if findings := tuple(_broken(table, takes=takes)):
        raise Refused(*findings)


def _broken(table: DeltaTable, *, takes: bool) -> Iterator[Finding]:
    where, properties = table.table_uri.rstrip("/"), table.metadata().configuration
    features = table.protocol().writer_features or ()
    # Where a key's rows lie is looked up in an upserted table each time. Elsewhere batches know their files by name.
    kept = _KEPT | ({VECTORS} if table.metadata().partition_columns == [RESIDUE] else set())
    for feature in features:
        if feature not in kept:
            yield _finding(f"the table needs the writer feature {feature!r}, which Coset does not have", where, feature)
    for name, condition in sorted(properties.items()):
        if name.startswith(_CHECK):
            name = name.removeprefix(_CHECK)
            what = f"the table has the CHECK constraint {name!r}: {condition}; Coset does not check it"
            yield _finding(what, where, name, _expect_instead(where, f"drop_constraint({name!r})"))
    if properties.get(_MAPPING, "none") != "none" and not features:
        yield _finding(f"the table maps its columns ({_MAPPING}), which Coset does not", where, _MAPPING)
    if takes and properties.get(_APPEND_ONLY, "").lower() == "true":
        what = f"the table may only be appended to ({_APPEND_ONLY}), but the commit removes rows"
        changeable = {_APPEND_ONLY: "false"}
        unset = f"allow changes: {_alter(where, f'set_table_properties({changeable})')}; then "
        yield _finding(what, where, _APPEND_ONLY, (unset, Repeat()))
    for field in table.schema().fields:
        yield from _of_column(field, where)


def _of_column(field: Field, where: str) -> Iterator[Finding]:
    if not field.nullable:
        what = f"column {field.name!r} must not be null in the table; Coset does not check it"
        yield _finding(what, where, field.name, _expect_instead(where, f"drop_column_not_null({field.name!r})"))
    for name in _OF_COLUMNS:
        if name in field.metadata:
            what = f"column {field.name!r} has the rule {name}: {field.metadata[name]}"
            yield _finding(what, where, f"{field.name}: {name}")


def _finding(what: str, where: str, rule: str, then: Then = "write to a table of another name") -> Finding:
    return Finding.of(Kind.TABLE_RULE, what, where, then, rule=rule)


def _expect_instead(where: str, call: str) -> str:
    return f"state it with expect= in the pipeline, and drop it: {_alter(where, call)}"


def _alter(where: str, call: str) -> str:
    """A line of Python that changes a table, for people to run."""
    return f"`{in_python(where)}.alter.{call}`"


def in_python(where: str) -> str:
    """A table in a line of Python, for people to run.

    >>> in_python("s3://lake/tables/spent/")
    'DeltaTable("s3://lake/tables/spent")'
    """
    return f'DeltaTable("{where.rstrip("/")}")'


def accepted_up_to(table: DeltaTable, name: str) -> int:
    """The version up to which somebody accepted what others did last. -1 if nobody did."""
    version: int | None = table.transaction_version(acceptance(name))
    return -1 if version is None else version


def acceptance(name: str) -> str:
    """The application of the transaction that says up to which version changes were accepted."""
    return f"{name}:accepted"
