"""The Arrow schema of a result table's data files, and the keys of rows that go as new ones are written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from coset.sources.file_columns import arrow_schema
from partitioning.documents.store import Store
from partitioning.model.composite_key import key_columns
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import MODULUS, Keyed
from partitioning.model.root_names import TABLES

# The partition column of an upserted table: the residue of a row's key.
RESIDUE = "_residue"
_LINEAGE = (pa.field("_batch", pa.int64()), pa.field("_task", pa.int32()))
# The hash of a null.
_NULL = np.uint64(0xD1B54A32D192ED03)
# A key of several columns is a number in this base; hashes are added up by halves, which do not overflow.
_SPREAD, _HALF, _LOW = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(2**32 - 1)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.timestamp("ms"): pa.timestamp("us"),
}


def folder(store: Store, table: str) -> str:
    """The URI of a result table. The paths of its data files are relative to it."""
    return store.uri(f"{TABLES}{table}")


@cache
def table_schema(write: PlannedWrite) -> pa.Schema:
    """The schema of a result table's data files: its columns, then `_batch` and `_task` if it has lineage.

    Delta has no unsigned integers, so they get a wider type. Timestamps have microseconds; those with a time zone are
    in UTC.
    """
    return pa.schema([*wider(arrow_schema(write.columns)), *(_LINEAGE if write.declared.lineage else ())])


def columns_of(write: PlannedWrite) -> pa.Schema:
    """The columns of a result table: those of its data files, and `_residue` if it is upserted."""
    schema = table_schema(write)
    return schema.append(pa.field(RESIDUE, pa.int32())) if write.declared.mode.by_key else schema


def wider(schema: pa.Schema) -> pa.Schema:
    """The same columns, in types that Spark and Delta know.

    >>> wider(pa.schema([("n", pa.uint32()), ("at", pa.timestamp("ms"))])).types
    [DataType(int64), TimestampType(timestamp[us])]
    """
    return pa.schema([field.with_type(_WIDER.get(field.type, field.type)) for field in schema])


def key_schema(write: PlannedWrite) -> pa.Schema:
    """The columns of a table's key, as its files have them."""
    every = columns_of(write)
    return pa.schema([every.field(name) for name in key_columns(write.declared.key)])


def keyed(write: PlannedWrite, rows: Sequence[pa.RecordBatch]) -> Keyed:
    """How many rows these are, and the digest of their keys, which does not depend on their order or their types before
    the table's."""
    schema, digest = key_schema(write), 0
    for batch in rows:
        hashed = np.zeros(len(batch), np.uint64)
        for column in batch.select(schema.names).cast(schema).columns:
            hashed = _mixed(hashed * _SPREAD + _hashed(column))
        digest += (int((hashed >> _HALF).sum()) << 32) + int((hashed & _LOW).sum())
    return Keyed(sum(map(len, rows)), f"{digest % MODULUS:016x}")


def _hashed(values: pa.Array) -> np.ndarray:
    from pandas.util import hash_array  # noqa: PLC0415  who asks for rows does not need it

    texts = values if pa.types.is_binary(values.type) else values.cast(pa.string())
    hashed: np.ndarray = hash_array(texts.fill_null("").to_numpy(zero_copy_only=False), categorize=False)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)


def _mixed(hashed: np.ndarray) -> np.ndarray:
    """Without it keys that have their columns' values in another pairing would add up alike (splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(hashed ^ (hashed >> np.uint64(31)))
