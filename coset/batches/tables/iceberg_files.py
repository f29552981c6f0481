"""Data files as an Iceberg table describes them: with the least and greatest value of each column.

The Delta log says these of files that Coset wrote. The footers of others are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)

from coset.batches.tables.held import BATCHES
from coset.batches.tables.live_files import LiveFile
from coset.batches.tables.logs import missing
from coset.batches.tables.position_deletes import partition_of
from coset.sources.files import TAIL, Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.store import at_once, listed
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from spark_jobs.tables.footers import footer_in


class Elsewhere(Exception):
    """Rows are not in the bucket that a log says."""


class DataFiles:
    """The data files of the Delta table in a folder, for an Iceberg table with this metadata."""

    def __init__(self, where: str, metadata: TableMetadata) -> None:
        self._where, self._store, self._files = where, store_at(where), Files()
        self._schema, self._spec = metadata.schema(), metadata.spec()
        schema = self._schema
        self._fields = {field.name: field for field in schema.fields}
        counts = metadata.properties | {"write.metadata.metrics.default": "counts"}
        self._plans = [compute_statistics_plan(schema, properties) for properties in (metadata.properties, counts)]
        self._columns = parquet_path_to_id_mapping(schema)
        # Nearly all have the same columns.
        self._check = lru_cache(None)(lambda columns: _check_pyarrow_schema_compatible(schema, columns))

    def described(self, files: Sequence[LiveFile], looked_at: tuple[str, ...]) -> list[DataFile]:
        """These files. Those that were `looked_at`, by how their paths begin, are there. Raises Refused with all that
        are missing, Elsewhere if rows are in another bucket than the log says, and the store's errors."""
        unread = [file for file in files if not _is_told(file) or self._told_keys(file) is None]
        footers = dict(zip((file.path for file in unread), at_once(self._footer, unread), strict=True))
        unseen = [file.path for file in files if not footers.get(file.path) and not file.path.startswith(looked_at)]
        there = {entry.key for entry in listed(self._store, unseen)}
        if gone := missing([self._uri(path) for path in unseen if path not in there]):
            raise Refused(*gone)
        return [
            self._described(file, self._of_footer(file, footer) if footer else self._told(file))
            for file in files
            for footer in [footers.get(file.path)]
        ]

    def _uri(self, path: str) -> str:
        return f"{self._where}/{path}"

    def _footer(self, file: LiveFile) -> pq.FileMetaData | None:
        size = file.size
        end = self._store.get_part(file.path, max(0, size - TAIL), size, None)
        if end is not None and (footer := footer_in(end)):
            return footer
        uri = self._uri(file.path)
        try:
            with reaching("the file cannot be read", uri, AGAIN), self._files.open(uri) as there:
                return pq.read_metadata(there)
        except FileNotFoundError:
            return None

    def _described(self, file: LiveFile, found: Mapping[str, Any]) -> DataFile:
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._uri(file.path),
            file_format=FileFormat.PARQUET,
            partition=partition_of(file, self._spec),
            file_size_in_bytes=file.size,
            **found,
        )

    def _told_keys(self, file: LiveFile) -> Sequence[Any] | None:
        """The least and greatest of the keys by which a file lies in its bucket. None where the log does not say."""
        if not self._spec.fields:
            return ()
        said, (key,) = json.loads(file.added["stats"]), self._keys
        keys = [said[of].get(key.name) for of in ("minValues", "maxValues")]
        return None if said["nullCount"].get(key.name) != 0 or not all(map(_is_whole, keys)) else keys

    def _footer_keys(self, footer: pq.FileMetaData) -> Sequence[Any]:
        """As `_told_keys`, with None if rows have no key."""
        groups = map(footer.row_group, range(footer.num_row_groups))
        chunks = (group.column(place) for group in groups for place in range(group.num_columns))
        names = [key.name for key in self._keys]
        found = [each.statistics for each in chunks if each.path_in_schema in names and each.statistics]
        keys = [value for each in found if each.has_min_max for value in (each.min, each.max) if _is_whole(value)]
        return [*keys, *(None for each in found if each.null_count)]

    @property
    def _keys(self) -> list[NestedField]:
        return [self._schema.find_field(field.source_id) for field in self._spec.fields]

    def _check_bucket(self, file: LiveFile, keys: Sequence[Any]) -> None:
        """Raise Elsewhere if one of these keys is in another bucket than a file, or none."""
        for field, key in zip(self._spec.fields, self._keys, strict=True):
            bucket = field.transform.transform(key.field_type)
            if any(bucket(value) != file.partition for value in keys):
                what = (
                    f"rows of {self._uri(file.path)} are not in bucket {file.partition} of {key.name}, as the log says"
                )
                raise Elsewhere(what)

    def _told(self, file: LiveFile) -> dict[str, Any]:
        """What the log says of a file's columns, by their ids."""
        self._check_bucket(file, self._told_keys(file) or ())
        said = json.loads(file.added["stats"], parse_float=Decimal)
        least, greatest, nulls = (
            {self._fields[name]: value for name, value in said[of].items() if name in self._fields}
            for of in ("minValues", "maxValues", "nullCount")
        )
        lower, upper = ({field.field_id: _bytes(field, each[field]) for field in each} for each in (least, greatest))
        return {
            "record_count": (rows := said["numRecords"]),
            # PyIceberg does not list a table's files without.
            "column_sizes": {},
            "value_counts": {field.field_id: rows for field in nulls},
            "null_value_counts": {field.field_id: count for field, count in nulls.items()},
            "lower_bounds": lower,
            "upper_bounds": upper,
        }

    def _of_footer(self, file: LiveFile, footer: pq.FileMetaData) -> dict[str, Any]:
        self._check(footer.schema.to_arrow_schema())
        self._check_bucket(file, self._footer_keys(footer))
        try:
            return self._statistics(footer, self._plans[0])
        except OverflowError:
            # Of a time that Python does not know, such as infinity.
            return self._statistics(footer, self._plans[1])

    def _statistics(self, footer: pq.FileMetaData, plan: dict[int, StatisticsCollector]) -> dict[str, Any]:
        return data_file_statistics_from_parquet_metadata(footer, plan, self._columns).to_serialized_dict()


def _is_whole(value: object) -> bool:
    """Whether a bound is a value of the column: writers cut long ones, logs those of more than 32 characters."""
    return value is not None and (not isinstance(value, str | bytes) or len(value) < 16)


def _is_told(file: LiveFile) -> bool:
    """Whether the log says of a file what Coset found when it wrote it."""
    return file.path.startswith(BATCHES) and '"nullCount"' in file.added.get("stats", "")


def _bytes(field: NestedField, said: Any) -> bytes:
    """A value of a column that a log says, as an Iceberg table has it."""
    kind = cast(PrimitiveType, field.field_type)
    match kind:
        case DateType():
            value: Any = date.fromisoformat(said)
        case TimestampType() | TimestamptzType():
            value = datetime.fromisoformat(said)
        case FloatType() | DoubleType():
            value = float(said)
        case DecimalType():
            value = Decimal(said)
        case _:
            value = said
    return to_bytes(kind, value)
