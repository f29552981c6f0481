"""Parquet files: the footer has the columns, and where offsets lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.file_columns import columns_of
from coset.sources.formats.landed_file import BATCH_ROWS, FileFacts, has_offsets


def open_parquet(source: pa.NativeFile, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Opens a Parquet file. Pages that have checksums are verified as they are read.

    Reading raises OSError for a damaged page.
    """
    return pq.ParquetFile(source, pre_buffer=pre_buffer, page_checksum_verification=True)


class ParquetRows:
    """A Parquet file, read row group by row group to bound memory."""

    def __init__(self, source: pa.NativeFile, offset: str) -> None:
        self._source = source
        self._offset = offset

    @cached_property
    def schema(self) -> pa.Schema:
        return open_parquet(self._source).schema_arrow.remove_metadata()

    def facts(self) -> FileFacts:
        """Read from the footer; without statistics of offsets, from their column."""
        parquet = open_parquet(self._source)
        columns = columns_of(parquet.schema_arrow.remove_metadata())
        rows = parquet.metadata.num_rows
        if rows == 0 or not has_offsets(columns, self._offset):
            return FileFacts(columns, rows)
        if bounds := _statistics(parquet, self._offset):
            return FileFacts(columns, rows, *bounds)
        offsets = parquet.read(columns=[self._offset], use_threads=False).column(0)
        if offsets.null_count:
            return FileFacts(columns, rows, without_offset=offsets.null_count)
        bounds = pc.min_max(offsets)
        return FileFacts(columns, rows, bounds["min"].as_py(), bounds["max"].as_py())

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        file = open_parquet(self._source, pre_buffer=True)
        names = set(file.schema_arrow.names)
        wanted = [name for name in columns if name in names]
        for group in range(file.metadata.num_row_groups):
            if _may_hold(file, group, self._offset, start, end):
                yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=wanted, use_threads=False)


def _statistics(parquet: pq.ParquetFile, column: str) -> tuple[int, int] | None:
    """Smallest and largest value of a column, from the footer. None if it has none."""
    groups = (_chunk(parquet, group, column) for group in range(parquet.metadata.num_row_groups))
    statistics = [chunk.statistics for chunk in groups if chunk is not None and chunk.num_values]
    if not all(found is not None and found.has_min_max and found.null_count == 0 for found in statistics):
        return None
    return min(found.min for found in statistics), max(found.max for found in statistics)


def _may_hold(parquet: pq.ParquetFile, group: int, offset: str, start: int, end: int) -> bool:
    """Whether a row group may hold offsets of [start, end)."""
    chunk = _chunk(parquet, group, offset)
    if chunk is None or chunk.statistics is None or not chunk.statistics.has_min_max:
        return True
    return bool(chunk.statistics.min < end and chunk.statistics.max >= start)


def _chunk(parquet: pq.ParquetFile, group: int, column: str) -> pq.ColumnChunkMetaData | None:
    """A column in a row group; None if there is none of that name."""
    metadata = parquet.metadata.row_group(group)
    chunks = (metadata.column(number) for number in range(metadata.num_columns))
    return next((chunk for chunk in chunks if chunk.path_in_schema == column), None)
