"""Declared tables: the stream that an Iceberg table can be declared as, by its columns and buckets."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from coset.sources.iceberg.named_catalogue import catalogue, catalogue_errors, text_of
from coset.sources.iceberg.snapshots import PIPELINE
from coset.sources.s3 import AGAIN
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.placement import KeyFormat, bucket_hash
from partitioning.model.sources import IcebergSource
from partitioning.model.streams import Stream
from partitioning.values import replace

if TYPE_CHECKING:
    from pyiceberg.table import Table

# The types of Iceberg's that keys have, by their format.
KEYS = {
    KeyFormat.STRING: ("string",),
    KeyFormat.LONG: ("int", "long"),
    KeyFormat.UUID: ("uuid",),
    KeyFormat.BYTES: ("binary", "fixed"),
    KeyFormat.INT: (),
    KeyFormat.DOUBLE: (),
}
# Of how many rows it is seen whether a key has several.
_MOST_LOOKED_AT = 1_000_000
_NOT_UNIQUE = "several rows have the same key, so it is no table by any column: a stream of it is refused once rows go"
NO_KEY = "name another key column: keys are text, whole numbers, uuids or bytes"


def declared(name: str, source: str) -> tuple[Stream, str]:
    """The stream that a table is, by its buckets; without any, one partition, with the first column that can be a key.
    If rows of it went, or rows are known by a column, it is a table by a column that no two rows have alike. Then also
    why, or why it is none.

    Raises Refused if the table is missing or no column can be a key; Unreachable if the catalogue does not answer.
    """
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  an extra

    place = IcebergSource(source.partition("://")[2])
    where = place.uri(name)
    with catalogue_errors(where, AGAIN):
        table = loaded(Stream(name, source, "", 1), place, where)
    keys = {
        field.field_id: (field.name, fits)
        for field in table.schema().fields
        if (fits := format_of(str(field.field_type)))
    }
    buckets = {
        field.source_id: field.transform.num_buckets
        for field in table.spec().fields
        if isinstance(field.transform, BucketTransform) and field.source_id in keys
    }
    if not keys:
        what, then = f"{name}: no column can be a key", NO_KEY
        raise Refused.of(Kind.STREAM_COLUMNS, what, where, then, stream=name)
    known_by = keys.keys() & {*table.schema().identifier_field_ids}
    numbers, unique, why = sorted(keys, key=lambda each: each not in buckets), None, ""
    if said := _may_go(table, is_known=len(known_by) == 1):
        numbers.sort(key=lambda each: each not in known_by)
        with catalogue_errors(where, AGAIN):
            unique = next((each for each in numbers if _is_unique(table, keys[each][0])), None)
        shown = unique and f"no two rows have one {keys[unique][0]}, so it can be read as a table"
        why = f"{said}; {shown or _NOT_UNIQUE}"
    number = unique or numbers[0]
    key, key_format = keys[number]
    of_key = key, buckets.get(number, 1), key_format
    stream = Stream(name, source, *of_key, hash=bucket_hash(key_format), counted=True)
    if stream.offset in (names := {each.name.lower() for each in table.schema().fields}):
        stream = replace(stream, offset=next(free for n in count() if (free := f"_position{'_' * n}") not in names))
    return stream if unique is None else replace(stream, table=True, kept=True), why


def _may_go(table: Table, *, is_known: bool) -> str:
    """Why rows of a table may go. Empty if nothing says so."""
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415  an extra

    newest = table.current_snapshot()
    if newest and newest.summary and PIPELINE in newest.summary.additional_properties:
        return "It follows a result table of Coset"
    if any(
        each.summary and each.summary.operation in {Operation.OVERWRITE, Operation.DELETE} for each in table.snapshots()
    ):
        return "Its snapshots delete or overwrite rows"
    return "It has a column by which rows are known" if is_known else ""


def _is_unique(table: Table, name: str) -> bool:
    """Whether a column has a value in each row, and none in two: of the first rows, if there are many."""
    try:
        rows = table.scan(selected_fields=(name,), limit=_MOST_LOOKED_AT).to_arrow().column(name)
    except ValueError:
        # PyIceberg reads no equality deletes. Discovery names what of that is there.
        return False
    return not rows.null_count and len(rows.unique()) == len(rows)


def format_of(kind: str) -> KeyFormat | None:
    """The format of keys of a type of Iceberg's. None if no key has it."""
    return next((each for each, names in KEYS.items() if kind.startswith(names)), None)


def loaded(stream: Stream, source: IcebergSource, where: str) -> Table:
    """The table that a stream reads, as the catalogue has it. Raises Refused if there is none, or PyIceberg does not
    know of what kind it is."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError  # noqa: PLC0415  an extra

    try:
        return catalogue(source.catalogue).load_table(source.identifier(stream.name))
    except (NoSuchNamespaceError, NoSuchTableError):
        then = "correct the name of the stream, or source=, which is iceberg://catalogue.namespace"
        what = f"{stream.name}: the catalogue {source.catalogue} has no table {source.identifier(stream.name)}"
        raise Refused.of(Kind.TOPIC_UNKNOWN, what, where, then, stream=stream.name) from None
    except (ValidationError, ValueError) as error:
        if "Invalid JSON" in str(error):
            # Something else has answered.
            raise
        what = f"{stream.name}: PyIceberg cannot read what the catalogue has of the table: {text_of(error)}"
        then = "let the table's engine copy its rows to a table without that, and read it as another stream"
        raise Refused.of(Kind.STREAM_COLUMNS, what, where, then, stream=stream.name) from error
