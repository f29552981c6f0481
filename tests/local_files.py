"""Landed files on this machine's disk, as a reader of landed files finds them in S3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from partitioning.model.placement import KeyFormat
from partitioning.model.streams import InputFile

ARROW_TYPES = {KeyFormat.STRING: pa.string(), KeyFormat.LONG: pa.int64(), KeyFormat.BYTES: pa.binary()}
# Small, so that a planned range begins and ends inside of them.
_ROW_GROUP = 3


class LocalFiles:
    """A folder that stands for the bucket `test`. Records have the columns of `tests.orders`."""

    def __init__(self, folder: Path) -> None:
        self._bucket = folder / "test"
        self._bucket.mkdir()
        self.system: FileSystem = SubTreeFileSystem(str(folder), LocalFileSystem())

    def land(
        self, stream: str, partition: int, first: int, keys: Sequence[object], key_format: KeyFormat = KeyFormat.STRING
    ) -> InputFile:
        """One file of records with these keys, from offset `first` on; each record has a number of its own."""
        offsets = range(first, first + len(keys))
        records = pa.table(
            {
                "k": pa.array(keys, ARROW_TYPES[key_format]),
                "record": pa.array([record(partition, offset) for offset in offsets], pa.int64()),
                "_offset": pa.array(offsets, pa.int64()),
            }
        )
        name = f"{stream}+{partition}+{first:010}.parquet"
        pq.write_table(records, self._bucket / name, row_group_size=_ROW_GROUP)
        size = (self._bucket / name).stat().st_size
        # A disk gives files no etag.
        return InputFile(f"s3://test/{name}", size, "", first, first + len(keys))


def record(partition: int, offset: int) -> int:
    """The number of a record."""
    return partition * 1_000_000 + offset
