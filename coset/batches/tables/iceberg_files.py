"""Data files as an Iceberg table describes them: with the least and greatest value of each column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata

from coset.batches.tables.live_files import LiveFile
from coset.batches.tables.logs import missing
from coset.batches.tables.position_deletes import partition_of
from coset.sources.files import TAIL, Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.store import at_once
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
        counts = metadata.properties | {"write.metadata.metrics.default": "counts"}
        self._plans = [compute_statistics_plan(schema, properties) for properties in (metadata.properties, counts)]
        self._columns = parquet_path_to_id_mapping(schema)
        # Nearly all have the same columns.
        self._check = lru_cache(None)(lambda columns: _check_pyarrow_schema_compatible(schema, columns))

    def described(self, files: Sequence[LiveFile]) -> list[DataFile]:
        """These files. Raises Refused with all that are missing, Elsewhere if rows are in another bucket than the log
        says, and the store's errors."""
        footers = at_once(self._footer, files)
        if gone := [uri for uri, footer in zip(map(self._uri, files), footers, strict=True) if footer is None]:
            raise Refused(*missing(gone))
        return [self._described(file, footer) for file, footer in zip(files, footers, strict=True) if footer]

    def _uri(self, file: LiveFile) -> str:
        return f"{self._where}/{file.path}"

    def _footer(self, file: LiveFile) -> pq.FileMetaData | None:
        size = file.size
        end = self._store.get_part(file.path, max(0, size - TAIL), size, None)
        if end is not None and (footer := footer_in(end)):
            return footer
        uri = self._uri(file)
        try:
            with reaching("the file cannot be read", uri, AGAIN), self._files.open(uri) as there:
                return pq.read_metadata(there)
        except FileNotFoundError:
            return None

    def _described(self, file: LiveFile, footer: pq.FileMetaData) -> DataFile:
        self._check(footer.schema.to_arrow_schema())
        self._check_bucket(file, footer)
        try:
            found = self._statistics(footer, self._plans[0])
        except OverflowError:
            # Of a time that Python does not know, such as infinity.
            found = self._statistics(footer, self._plans[1])
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._uri(file),
            file_format=FileFormat.PARQUET,
            partition=partition_of(file, self._spec),
            file_size_in_bytes=file.size,
            **found,
        )

    def _check_bucket(self, file: LiveFile, footer: pq.FileMetaData) -> None:
        """Raise Elsewhere if the least or greatest keys of a file are in another bucket, or rows have no key."""
        for field in self._spec.fields:
            key = self._schema.find_field(field.source_id)
            bucket = field.transform.transform(key.field_type)
            groups = map(footer.row_group, range(footer.num_row_groups))
            chunks = (group.column(place) for group in groups for place in range(group.num_columns))
            found = [each.statistics for each in chunks if each.path_in_schema == key.name and each.statistics]
            keys = [value for each in found if each.has_min_max for value in (each.min, each.max) if _is_whole(value)]
            if any(each.null_count for each in found) or any(bucket(value) != file.partition for value in keys):
                what = f"rows of {self._uri(file)} are not in bucket {file.partition} of {key.name}, as the log says"
                raise Elsewhere(what)

    def _statistics(self, footer: pq.FileMetaData, plan: dict[int, StatisticsCollector]) -> dict[str, Any]:
        return data_file_statistics_from_parquet_metadata(footer, plan, self._columns).to_serialized_dict()


def _is_whole(value: object) -> bool:
    """Whether a bound is a value of the column: writers cut what is longer than 64 bytes."""
    return not isinstance(value, str | bytes) or len(value) < 16
