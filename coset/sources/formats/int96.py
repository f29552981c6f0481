"""INT96: times of Parquet as Hive, Impala and Spark wrote them, a Julian day and the nanoseconds of the day.

No Arrow type holds them all: nanoseconds end in 2262, and microseconds drop what is finer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.plain_arrays import rebuilt

_NANOS_OF_MILLI = 1_000_000
_MOST_MILLIS = (2**63 - 1) // 1000 - 1


def int96_columns(file: pq.ParquetFile) -> Iterator[str]:
    """The columns of a file with such times, also within lists, maps and structs."""
    leaves = map(file.schema.column, range(len(file.schema)))
    within = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    yield from (name for name in file.schema_arrow.names if name.split(".")[0] in within)


def times_of(millis: pa.Array, nanos: pa.Array) -> pa.Array:
    """The values of a column that was read once in milliseconds, and once in nanoseconds, which wrap round.

    They are microseconds; or text, if any of them is finer than that or beyond it, to be cast to what holds it.
    """
    return rebuilt([millis, nanos], lambda parts: parts[0] if parts[0].type == parts[1].type else _times(*parts))


def _times(millis: pa.Array, nanos: pa.Array) -> pa.Array:
    missing = millis.is_null()
    whole, wrapped = (column.cast(pa.int64()).fill_null(0).to_numpy() for column in (millis, nanos))
    rest = (wrapped.view(np.uint64) - whole.view(np.uint64) * np.uint64(_NANOS_OF_MILLI)).view(np.int64)
    if not (rest % 1000).any() and (abs(whole) <= _MOST_MILLIS).all():
        micros = pa.array(whole * 1000 + rest // 1000, pa.timestamp("us"))
        return pc.if_else(missing, pa.scalar(None, micros.type), micros)
    digits = pc.utf8_lpad(pa.array(rest).cast(pa.string()), 6, "0")
    needed = pc.if_else(pa.array(rest % 1000 == 0), pc.utf8_slice_codeunits(digits, 0, 3), digits)
    printed = millis.cast(pa.string())
    # Arrow prints no year beyond 32767.
    far = np.char.replace(np.datetime_as_string(whole.view("M8[ms]"), unit="ms"), "T", " ")
    printed = pc.if_else(pc.starts_with(printed, "<"), pa.array(far), printed)
    texts = pc.binary_join_element_wise(printed, needed, "")
    return pc.if_else(missing, pa.scalar(None, pa.string()), texts)
