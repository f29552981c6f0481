"""Landed files as discovery and tasks see them, in any format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from coset.sources.file_columns import FileColumns
from partitioning.model.streams import Column

# The type of offsets, by DuckDB's name.
OFFSET_TYPE = "BIGINT"
LAND_AGAIN = "remove the file and land it again"
# Large enough to make the work for each batch negligible, small enough for the processor's cache.
BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file holds. `first` and `last` are None in a file without records, and where they are unknown: without a
    column of offsets, or if records are `without_offset`."""

    columns: FileColumns
    rows: int
    first: int | None = None
    last: int | None = None
    without_offset: int = 0


class Unreadable(Exception):
    """Raised for a file that can be fetched but not read: what is wrong, and what to do."""

    def __init__(self, what: str, then: str) -> None:
        super().__init__(what)
        self.then = then


class UnusableRecord(ValueError):
    """Raised for a record that can be read, and not used: why, and what to do."""

    def __init__(self, what: str, then: str) -> None:
        super().__init__(what)
        self.then = then


class LandedFile(Protocol):
    """An open file.

    Raises Unreadable, UnknownType or an error of Arrow's if it cannot be read, and OSError too if the store fails.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file, or the declared ones."""

    def facts(self) -> FileFacts:
        """What it holds. Reads no more than that needs."""

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records in their order, with those of these columns that it has.

        Records outside [start, end) may be left out.
        """


def has_offsets(columns: FileColumns, offset: str) -> bool:
    """Whether a file has this column of offsets. One that is missing or has another type is reported with other
    errors."""
    return Column(offset, OFFSET_TYPE) in columns.columns
