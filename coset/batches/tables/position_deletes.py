"""Position deletes: files by which readers of an Iceberg table know the dead rows of its data files.

A data file with dead rows has one such file, with all of them, as Iceberg's own writers keep it: were each to have only
what is newly dead, one data file could gather any number. Its name says of which deletion vector it is. So two versions
differ by the names of these files, whatever was done between.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import Record

from coset.batches.tables.deletion_vectors import dead
from coset.batches.tables.live_files import LiveFile, identity, vector_files
from partitioning.documents.document import canonical, digest_of
from partitioning.documents.store import at_once
from partitioning.documents.stores import store_at

# Columns of the format, with their ids.
_PATH, _ROW = 2147483546, 2147483545
_SCHEMA = pa.schema(
    pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
    for name, kind, number in (("file_path", pa.string(), _PATH), ("pos", pa.int64(), _ROW))
)
_NAMED = re.compile(r"dead-([0-9a-f]{32})-[^/]*$")
# So many manifests become one, of 8 MB or less.
_FEWEST = 2
_BYTES = 8 << 20


class PositionDeletes:
    """Those that an Iceberg table is to have: of the files of the Delta table in a folder."""

    def __init__(self, where: str, files: Iterable[LiveFile]) -> None:
        self._where = where
        self._wanted = {_name(file): file for file in files if file.dead}

    def are_of(self, tasks: Iterable[FileScanTask]) -> bool:
        """Whether readers have these."""
        return {_name_in(file) for task in tasks for file in task.delete_files} == self._wanted.keys()

    def manifests(self, change: Overwrite, held: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The manifests of these, of which some are `held`. New ones are written, and the summary of a change counts
        what comes and goes."""
        entries = [entry for each in held for entry in change.fetch_manifest_entry(each)]
        stay = {_name_in(entry.data_file) for entry in entries} & self._wanted.keys()
        come = self._written(change, sorted(self._wanted.keys() - stay))
        gone = {entry.data_file for entry in entries if _name_in(entry.data_file) not in stay}
        if not come and not gone:
            return [*held]
        metadata = change._transaction.table_metadata
        output = change.new_manifest_output()
        with _Manifest(metadata.spec(), change.schema(), output, change.snapshot_id, change._compression) as writer:
            for entry in entries:
                (writer.delete if entry.data_file in gone else writer.existing)(entry)
            for file in come:
                writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
        for file in come:
            change.append_data_file(file)
        for file in gone:
            change.delete_data_file(file)
        return [writer.to_manifest_file()]

    def _written(self, change: Overwrite, names: Sequence[str]) -> list[DataFile]:
        files, store = [self._wanted[name] for name in names], store_at(self._where)
        vectors = sorted(vector_files(files))
        contents = dict(zip(vectors, at_once(store.get, vectors), strict=True))
        return at_once(partial(self._file, change), [(file, dead(store, file.vector, contents)) for file in files])

    def _file(self, change: Overwrite, of: tuple[LiveFile, Iterable[int]]) -> DataFile:
        """Write the rows of a data file that are dead, in their order. No two attempts write files of one name."""
        file, numbers = of
        path, rows = f"{self._where}/{file.path}", pa.array(numbers, pa.int64())
        sink = io.BytesIO()
        table = pa.Table.from_arrays([pa.repeat(path, len(rows)), rows], schema=_SCHEMA)
        pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"], store_schema=False)
        name = f"dead-{_name(file)}-{change.snapshot_id}.parquet"
        where = change._transaction._table.location_provider().new_data_location(name)
        with change._io.new_output(where).create() as output:
            output.write(sink.getvalue())
        # By these, which are equal for the path, readers know of which data file it is.
        least, greatest = ({_PATH: path.encode(), _ROW: struct.pack("<q", rows[at].as_py())} for at in (0, -1))
        return DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=where,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=sink.tell(),
            # PyIceberg does not list a table's files without.
            column_sizes={},
            lower_bounds=least,
            upper_bounds=greatest,
        )


class Overwrite(_OverwriteFiles):
    """A snapshot that has position deletes, and merges manifests. PyIceberg merges those of appends, and keeps for good
    those of what each overwrite removed."""

    def __init__(self, transaction: Transaction, deletes: PositionDeletes, said: dict[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, transaction, transaction._table.io, snapshot_properties=said)
        self._deletes = deletes

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        of = dict[ManifestContent, list[ManifestFile]]((content, []) for content in ManifestContent)
        for each in manifests:
            if each.has_added_files() or each.has_existing_files() or each.added_snapshot_id == self.snapshot_id:
                of[each.content].append(each)
        merging = _ManifestMergeManager(_BYTES, _FEWEST, True, self)
        merged = merging.merge_manifests(of[ManifestContent.DATA])
        return [*merged, *self._deletes.manifests(self, of[ManifestContent.DELETES])]


def _name(file: LiveFile) -> str:
    return digest_of(canonical(identity(file.added))).rpartition(":")[2][:32]


def _name_in(file: DataFile) -> str:
    """The name of the vector that a file is of. Empty if it is of none."""
    return found[1] if (found := _NAMED.search(file.file_path)) else ""


class _Manifest(ManifestWriterV2):
    """PyIceberg 0.12 writes only manifests of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
