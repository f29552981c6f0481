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

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.locations import LocationProvider
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


def vector_name(file: LiveFile) -> str:
    """The name of the deletion vector of a file."""
    return digest_of(canonical(identity(file.added))).rpartition(":")[2][:32]


def name_of(file: DataFile) -> str:
    """What tells a file of an Iceberg table from others: its path, or the name of the vector that it is of."""
    found = _NAMED.search(file.file_path) if file.content is DataFileContent.POSITION_DELETES else None
    return found[1] if found else file.file_path


def partition_of(file: LiveFile, spec: PartitionSpec) -> Record:
    """Where an Iceberg table has a file, and its position deletes: in its bucket if it has buckets."""
    return Record(*(file.partition for _ in spec.fields))


def written(
    where: str, files: Sequence[LiveFile], output: FileIO, places: LocationProvider, mark: str, spec: PartitionSpec
) -> list[DataFile]:
    """Write those of files of the Delta table in a folder, for the snapshot to come that has this mark."""
    store, vectors = store_at(where), sorted(vector_files(files))
    contents = dict(zip(vectors, at_once(store.get, vectors), strict=True))
    found = [_described(where, file, dead(store, file.vector, contents), places, mark, spec) for file in files]
    at_once(_write, [(output.new_output(described.file_path), data) for described, data in found])
    return [described for described, _ in found]


def _write(of: tuple[OutputFile, bytes]) -> None:
    output, data = of
    with output.create(overwrite=True) as stream:
        stream.write(data)


def _described(
    folder: str, file: LiveFile, numbers: Iterable[int], places: LocationProvider, mark: str, spec: PartitionSpec
) -> tuple[DataFile, bytes]:
    """The file of the rows of a data file that are dead, in their order, and what it has."""
    path, rows = f"{folder}/{file.path}", pa.array(numbers, pa.int64())
    sink = io.BytesIO()
    table = pa.Table.from_arrays([pa.repeat(path, len(rows)), rows], schema=_SCHEMA)
    pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"], store_schema=False)
    where = places.new_data_location(f"dead-{vector_name(file)}-{mark}.parquet")
    # By these, which are equal for the path, readers know of which data file it is.
    least, greatest = ({_PATH: path.encode(), _ROW: struct.pack("<q", rows[at].as_py())} for at in (0, -1))
    described = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=where,
        file_format=FileFormat.PARQUET,
        partition=partition_of(file, spec),
        record_count=len(rows),
        file_size_in_bytes=sink.tell(),
        # PyIceberg does not list a table's files without.
        column_sizes={},
        lower_bounds=least,
        upper_bounds=greatest,
    )
    return described, sink.getvalue()
