"""Counted offsets: the file's name has the offset of the first record, and the others follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from coset.sources.file_columns import FileColumns
from coset.sources.formats.landed_file import OFFSET_TYPE, FileFacts, LandedFile, Unreadable
from coset.sources.reader import RAW, WHY
from partitioning.model.streams import Column


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
