"""Rules of a table: what its log demands of writers, as far as Coset does not ensure it.

Files are committed as tasks wrote them, so nothing would check their rows against a constraint of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from deltalake import DeltaTable, Field

from coset.batches.tables.live_files import VARIANTS, VECTORS
from coset.sources.s3 import in_python
from partitioning.commands import Repeat, Then
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import RESIDUE

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
    refuse(_broken(table, takes=takes))


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
    return f"`{in_python(where, f'alter.{call}')}`"
