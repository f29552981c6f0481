"""The schema of an Iceberg table: columns, buckets and properties, as its table has them now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from coset.batches.tables.delta import BUCKETS, buckets_in
from coset.batches.tables.iceberg_marks import NAME
from coset.batches.tables.log_copy import TableLog
from coset.sources.iceberg.data_files import ids_in
from partitioning.model.streams import PART, renamed
from partitioning.model.table_parts import Buckets
from spark_jobs.tables.table_schema import RESIDUE

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.types import NestedField

_NAMES, _KEEPS = "schema.name-mapping.default", "gc.enabled"
FORMAT = 2
PROPERTIES = {
    "format-version": str(FORMAT),
    # `coset compact` removes files, and keeps those that time travel and backfills need.
    _KEEPS: "false",
    "write.metadata.delete-after-commit.enabled": "true",
}


def columns_of(log: TableLog) -> pa.Schema:
    """The columns of a table, with what is said of them."""
    fields = pa.schema(log.schema().to_arrow())
    said = {field.name: field.metadata.get("comment") for field in log.schema().fields}
    return pa.schema(
        field.with_metadata({"doc": said[field.name]} if said[field.name] else None)
        for field in fields
        if field.name != RESIDUE
    )


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Columns as Iceberg has them. Raises ValueError if it cannot."""
    from pyiceberg.catalog import Catalog  # noqa: PLC0415  an extra

    return Catalog._convert_schema_if_needed(columns)


def buckets_of(log: TableLog) -> Buckets | None:
    """The buckets that the partitions of a table are."""
    return buckets_in(log) if log.metadata().partition_columns == [RESIDUE] else None


def lies_by(table: Table) -> str:
    """By what buckets the files of an Iceberg table lie. Empty if by none; by others, how the table shows that."""
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

    match table.spec().fields:
        case ():
            return ""
        case (field,) if isinstance(field.transform, BucketTransform):
            key = table.schema().find_column_name(field.source_id)
            return str(Buckets(field.transform.num_buckets, key or ""))
        case _:
            return str(table.spec())


def evolved(
    table: Table, columns: pa.Schema, name: str, buckets: Buckets | None
) -> tuple[TableMetadata, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The metadata of an Iceberg table with the columns and buckets of its table, what a catalogue is to do for that,
    and upon what. One that has another type there is another column."""
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

    transaction = table.transaction()
    said = {NAME: name, BUCKETS: str(buckets or ""), _KEEPS: PROPERTIES[_KEEPS]}
    if other_said := {key: value for key, value in said.items() if table.properties.get(key, "") != value}:
        transaction.set_properties(other_said)
    if not _maps_names(table):
        # Files have no ids of columns. PyIceberg keeps it when columns change.
        transaction.set_properties({_NAMES: table.schema().name_mapping.model_dump_json()})
    wanted = {field.name: field for field in iceberg_schema(columns).fields}
    held = {field.name: field for field in table.schema().fields}
    other = [key for key in held if key in wanted and _type(held[key]) != _type(wanted[key])]
    if lies_otherwise := lies_by(table) != str(buckets or "") or (buckets is not None and buckets.key in other):
        with transaction.update_spec() as lies:
            for part in table.spec().fields:
                lies.remove_field(part.name)
    _change_columns(transaction, held, wanted, other)
    if lies_otherwise and buckets:
        # No column has the name of a partition.
        named = next(free for n in count() if (free := f"{buckets.key}_bucket_{buckets.count}{'_' * n}") not in wanted)
        with transaction.update_spec() as lies:
            lies.add_field(buckets.key, BucketTransform(buckets.count), named)
    updates, requirements = transaction._updates, transaction._requirements
    return transaction.table_metadata if updates else table.metadata, updates, requirements


def _change_columns(
    transaction: Transaction, held: Mapping[str, NestedField], wanted: Mapping[str, NestedField], other: Sequence[str]
) -> None:
    """Let a table have the columns that are wanted, of which some have another type. What others say of columns that
    go, or that have a value in each row, goes too."""
    gone = [*other, *(held.keys() - wanted.keys())]
    altered = [name for name in held if name in wanted and _said_of_it(held[name]) != _said_of_it(wanted[name])]
    if not gone and not altered and held.keys() == wanted.keys():
        return
    if gone and not transaction.table_metadata.sort_order().is_unsorted:
        transaction.update_sort_order().commit()
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        if gone or any(held[name].required for name in altered):
            update.set_identifier_fields()
        for name in gone:
            update.delete_column((name,))
        for name, field in wanted.items():
            if name in other or name not in held:
                update.add_column((name,), field.field_type, field.doc)
            elif name in altered:
                update.update_column((name,), doc=field.doc, required=field.required)


def _said_of_it(field: NestedField) -> tuple[str | None, bool]:
    return field.doc, field.required


def _maps_names(table: Table) -> bool:
    """Whether a table says by the names of all of its columns, and their parts, which they are."""
    mapping, schema = table.metadata.name_mapping(), table.schema()
    mapped = {name: each.field_id for name, each in mapping._field_by_name.items()} if mapping else {}
    return all(mapped.get(name) == schema.find_field(name).field_id for name in schema.column_names)


def _type(field: NestedField) -> str:
    """The type of a column, without the numbers that its table gave to the parts of it."""
    return re.sub(r"-?[0-9]+: ", "", str(field.field_type))


def renamed_since(table: Table, ours: Snapshot) -> str:
    """The columns, and their parts, that have other names than in one of Coset's snapshots. Files still have those of
    then, and bounds: a filter would go by those of another column."""
    schemas = table.schemas()
    if ours.schema_id not in schemas:
        return ""
    differing = renamed(ids_in(schemas[ours.schema_id]), ids_in(table.schema())).items()
    return ", ".join(f"{now} was {was}" for now, was in differing if was).replace(PART, ".")
