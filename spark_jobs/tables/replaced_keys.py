"""Replaced keys: those of an upserted table whose rows go, as new ones are written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa

from partitioning.model.composite_key import key_columns
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import MODULUS, Keyed
from spark_jobs.tables.table_schema import columns_of


def key_schema(write: PlannedWrite) -> pa.Schema:
    """The columns of a table's key, as its files have them."""
    every = columns_of(write)
    return pa.schema([every.field(name) for name in key_columns(write.declared.key)])


def keyed(write: PlannedWrite, rows: Sequence[pa.RecordBatch]) -> Keyed:
    """How many rows these are, and the digest of their keys, which does not depend on their order or their types before
    the table's."""
    schema, digest = key_schema(write), 0
    for batch in rows:
        values = batch.select(schema.names).cast(schema)
        for key in zip(*(column.to_pylist() for column in values.columns), strict=True):
            digest += int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())
    return Keyed(sum(map(len, rows)), f"{digest % MODULUS:016x}")
