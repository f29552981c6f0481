"""Bits of Parquet files that are flipped, so that only a page's checksum can tell."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq


def flipped(data: bytes) -> bytes:
    """The file, which has no nulls, with one bit of its data flipped: at the first place at which readers that verify
    nothing give other values, and as many of them, without a word."""
    before = _read(data)
    for place in range(4, len(data) - pq.read_metadata(io.BytesIO(data)).serialized_size - 8):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        after = _read(changed)
        if after is not None and len(after) == len(before) and not after.equals(before):
            return changed
    raise AssertionError("every flipped bit is noticed")


def _read(data: bytes) -> pa.Table:
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=False)
    except (pa.ArrowException, OSError):
        return None
    return None if any(column.null_count for column in table.columns) else table
