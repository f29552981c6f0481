"""Arrow's arrays, made of NumPy's, and how they are compressed in files of tasks in Arrow's stream format.

`pa.array` would import pandas, which costs each process a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
# Each column is compressed alone. Of a batch of fewer bytes that spares nearly nothing, and takes far longer than to
# write and read the batch.
LITTLE = 4096


def mask(flags: np.ndarray) -> pa.Array:
    """Flags as an Arrow array for `filter`.

    >>> mask(np.array([True, False, True])).to_pylist()
    [True, False, True]
    """
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(flags), [None, bits])


def numbers(values: np.ndarray) -> pa.Array:
    """Integers as an Arrow array of int64.

    >>> numbers(np.array([3, 1])).to_pylist()
    [3, 1]
    """
    values = np.ascontiguousarray(values, np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def together(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches, some of them together: no more than are needed for so many rows, or so many bytes.

    >>> three = [pa.record_batch({"n": pa.array(range(count), pa.int64())}) for count in (5, 1, 7)]
    >>> [list(map(len, some)) for some in together(three, 6, 1000)]
    [[5, 1], [7]]
    """
    some, count, taken = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        some.append(batch)
        count, taken = count + len(batch), taken + batch.nbytes
        if count >= rows or taken >= size:
            yield some
            some, count, taken = [], 0, 0
    if some:
        yield some
