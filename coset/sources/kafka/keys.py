"""The keys of records, as Kafka's serialisers wrote them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import assert_never

import pyarrow as pa

from coset.sources.kafka.wrong import Wrong, first_wrong
from partitioning.model.placement import KeyFormat

_ERRORS = (UnicodeDecodeError, struct.error)


def keys_of(written: Sequence[bytes | None], key_format: KeyFormat) -> pa.Array:
    """The keys as a column, null where there is none. Raises Wrong at the first key of another format."""
    match key_format:
        case KeyFormat.BYTES:
            return pa.array(written, pa.binary())
        case KeyFormat.STRING | KeyFormat.UUID:
            return _read(written, lambda key: str(key, "utf-8"), pa.string(), key_format)
        case KeyFormat.LONG:
            return _read(written, _unpacked(">q"), pa.int64(), key_format)
        case KeyFormat.INT:
            return _read(written, _unpacked(">i"), pa.int32(), key_format)
        case KeyFormat.DOUBLE:
            return _read(written, _unpacked(">d"), pa.float64(), key_format)
        case _:
            assert_never(key_format)


def _unpacked(layout: str) -> Callable[[bytes], object]:
    packed = struct.Struct(layout)
    return lambda key: packed.unpack(key)[0]


def _read(
    written: Sequence[bytes | None], read: Callable[[bytes], object], kind: pa.DataType, key_format: KeyFormat
) -> pa.Array:
    try:
        return pa.array([None if key is None else read(key) for key in written], kind)
    except _ERRORS:
        number = first_wrong(written, read, _ERRORS).number
        raise Wrong(number, f"the key is not of the declared format {key_format.value!r}") from None
