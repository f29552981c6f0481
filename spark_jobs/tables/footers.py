"""Footers of result files: a file's own rows and columns, read back by its writer and by the decision."""

from __future__ import annotations

import io
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

# A file ends with the length of its footer and four letters.
_LENGTH = 8


def footer_in(end: bytes) -> pq.FileMetaData | None:
    """The footer of a Parquet file, from the `end` of the file. None if that does not have all of it."""
    if len(end) < _LENGTH or int.from_bytes(end[-_LENGTH:-4], "little") + _LENGTH > len(end):
        return None
    return pq.read_metadata(io.BytesIO(end))


def seal(size: int, etag: str, digest: str, rows: int, schema: pa.Schema) -> str:
    """What stands for a stored file and its footer: another file, another number of rows or other columns have another
    seal.

    >>> views = pa.schema([("views", pa.int64())])
    >>> seal(9, "e1", "sha256:0", 4, views) == seal(9, "e1", "sha256:0", 4, views)
    True
    >>> seal(9, "e1", "sha256:0", 4, views) == seal(9, "e1", "sha256:0", 5, views)
    False
    """
    columns = [f"{field.name} {field.type} {field.nullable}" for field in schema]
    return sha256("\n".join((f"{size} {etag} {digest} {rows}", *columns)).encode()).hexdigest()[:32]
