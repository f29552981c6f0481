"""Landed files in a folder of a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.documents.folder_store import etag_of
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import InputFile

ARROW_TYPES = {KeyFormat.STRING: pa.string(), KeyFormat.LONG: pa.int64(), KeyFormat.BYTES: pa.binary()}
# Small, so that a planned range begins and ends inside of them.
_ROW_GROUP = 3


class LocalFiles:
    """Files in a folder. Records have the columns of `tests.orders`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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
        file = self._folder / f"{stream}+{partition}+{first:010}.parquet"
        pq.write_table(records, file, row_group_size=_ROW_GROUP)
        return InputFile(f"file://{file}", file.stat().st_size, etag_of(file), first, first + len(keys))


def record(partition: int, offset: int) -> int:
    """The number of a record."""
    return partition * 1_000_000 + offset
