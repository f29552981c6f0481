"""Landed files as discovery and tasks see them, in any format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from coset.sources.file_columns import FileColumns
from coset.sources.reader import RAW, WHY
from partitioning.model.streams import Column

# The type of offsets, by DuckDB's name.
OFFSET_TYPE = "BIGINT"
# What says which landing by Coset wrote a file, or a line of it.
MARK = "coset.landed"
# The column of a sample that says in which partition a record lies.
PARTITION = "_partition"
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


class Counted:
    """A file whose first record has the offset `first`; it gets a column of offsets."""

    def __init__(self, file: LandedFile, offset: str, first: int) -> None:
        self._file = file
        self._field = pa.field(offset, pa.int64(), nullable=False)
        self._first = first

    @property
    def schema(self) -> pa.Schema:
        written = self._file.schema
        if self._field.name in written.names:
            what = f"the file has a column {self._field.name!r}, and offset=None says that records lack their offset"
            raise Unreadable(what, f"declare offset={self._field.name!r}, or land the column under another name")
        return written.append(self._field)

    def facts(self) -> FileFacts:
        facts = self._file.facts()
        name, columns = self.schema.names[-1], facts.columns
        columns = FileColumns((*columns.columns, Column(name, OFFSET_TYPE)), columns.required | {name})
        if not facts.rows:
            return FileFacts(columns, 0)
        return FileFacts(columns, facts.rows, self._first, self._first + facts.rows - 1)

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        offset, first = self._field.name, self._first
        names = set(self._file.schema.names)
        # To count records, they must be read.
        written = [name for name in columns if name in names] or self._file.schema.names[:1]
        for records in self._file.batches(written, start, end):
            if first >= end:
                return
            following = first + len(records)
            if following > start:
                numbers = pa.array(range(first, following), pa.int64())
                counted = records.append_column(self._field, numbers)
                beside = [field.name for field in (WHY, RAW) if field.name in records.schema.names]
                yield counted.select([*(name for name in columns if name in names or name == offset), *beside])
            first = following
