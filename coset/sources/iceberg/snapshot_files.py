"""The data files that a table has at one time, and their rows but for those that are deleted by their positions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from coset.sources.iceberg.row_positions import rows_at

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry

_NO_ROWS = np.empty(0, np.int64)


class LiveFiles:
    """Data files by their paths. Files that delete rows have `positions` of them by path; those in `by_values` delete
    rows by what these hold."""

    def __init__(
        self, entries: Iterable[ManifestEntry], positions: Callable[[DataFile], Mapping[str, np.ndarray]]
    ) -> None:
        from pyiceberg.table.delete_file_index import DeleteFileIndex  # noqa: PLC0415  an extra

        self.files: dict[str, ManifestEntry] = {}
        self.by_values = list[str]()
        self._positions = positions
        self._deletes = DeleteFileIndex()
        for entry in entries:
            self._add(entry)

    @property
    def rows(self) -> int:
        """How many rows the files have, with those that are deleted."""
        return sum(entry.data_file.record_count for entry in self.files.values())

    def _add(self, entry: ManifestEntry) -> None:
        from pyiceberg.manifest import DataFileContent  # noqa: PLC0415  an extra

        file = entry.data_file
        match file.content:
            case DataFileContent.DATA:
                self.files[file.file_path] = entry
            case DataFileContent.POSITION_DELETES:
                self._deletes.add_delete_file(entry, file.partition)
            case DataFileContent.EQUALITY_DELETES:
                self.by_values.append(file.file_path)

    def but(self, other: LiveFiles) -> Iterator[tuple[DataFile, int, str]]:
        """The rows that others have not: by the files' names each with how many, and which, as plans say it."""
        for path in sorted(self.files):
            entry, theirs = self.files[path], other.files.get(path)
            file, by = entry.data_file, self._deleting(entry)
            if theirs is not None and other._deleting(theirs) == by:
                continue
            dead, count = self._dead(path, by), file.record_count
            if theirs is not None:
                rows = np.setdiff1d(other._dead(path, other._deleting(theirs)), dead)
            elif len(dead):
                rows = np.setdiff1d(np.arange(count), dead)
            else:
                yield file, count, ""
                continue
            if len(rows):
                yield file, len(rows), rows_at(rows, count)

    def _deleting(self, entry: ManifestEntry) -> Collection[DataFile]:
        """The files that may delete rows of one."""
        return self._deletes.for_data_file(entry.sequence_number or 0, entry.data_file, entry.data_file.partition)

    def _dead(self, path: str, deleting: Collection[DataFile]) -> np.ndarray:
        """The positions that these files delete of one."""
        found = [positions for each in deleting if (positions := self._positions(each).get(path)) is not None]
        return np.unique(np.concatenate(found)) if found else _NO_ROWS
