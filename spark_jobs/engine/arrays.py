"""NumPy arrays as Arrow arrays. `pa.array` would import pandas for it, which costs a second in each process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def mask(flags: np.ndarray) -> pa.Array:
    """Flags as an Arrow array to filter by.

    >>> mask(np.array([True, False, True])).to_pylist()
    [True, False, True]
    """
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(flags), [None, bits])


def numbers(values: np.ndarray) -> pa.Array:
    """Whole numbers of 64 bits as an Arrow array.

    >>> numbers(np.array([3, 1])).to_pylist()
    [3, 1]
    """
    values = np.ascontiguousarray(values, np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
