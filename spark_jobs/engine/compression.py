"""Compression of what tasks leave in Arrow's stream format."""

from __future__ import annotations

import pyarrow as pa

COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
# Each column is compressed alone. Of a batch of fewer bytes that spares nearly nothing, and takes far longer than to
# write and read the batch.
LITTLE = 4096
