"""Landed files as discovery and tasks see them, whatever format they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from coset.sources.file_columns import FileColumns
from partitioning.model.streams import Column

# Offsets are of this type, by DuckDB's name.
OFFSET_TYPE = "BIGINT"
# Large enough that the work per batch does not count, small enough to stay near the processor.
BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file holds. `first` and `last` offset are None in a file without records, and where they are not known:
    in one without a column of offsets, or with records that are `without_offset`."""

    columns: FileColumns
    rows: int
    first: int | None = None
    last: int | None = None
    without_offset: int = 0


class Unreadable(Exception):
    """Raised for a file that can be fetched and not be read: what is wrong with it, and what to do."""

    def __init__(self, what: str, then: str) -> None:
        super().__init__(what)
        self.then = then


class LandedFile(Protocol):
    """An open file.

    Raises Unreadable, UnknownType or an error of Arrow's if it cannot be read, and OSError too if the store fails.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns that the file has, or that are declared."""

    def facts(self) -> FileFacts:
        """What it holds, by reading no more of it than is needed."""

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records with those of these columns that it has, in their order.

        Those with offsets outside [start, end) may be left out.
        """


def has_offsets(columns: FileColumns, offset: str) -> bool:
    """Whether a file has this column of offsets. One that is missing or of another type is reported with others."""
    return Column(offset, OFFSET_TYPE) in columns.columns
