"""Dead rows: finds the rows of an upserted table beside which a batch writes new ones, by their keys.

The table itself says where a key's row lies, as its log has it when the batch is published: whoever moves rows
meanwhile, by compaction for instance, changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from coset.batches.tables import deletion_vectors
from coset.batches.tables.dead_row_proof import ROW, DeadRows, FileKeys, met, proved
from coset.batches.tables.live_files import LiveFile, live_files
from coset.batches.tables.log_copy import TableLog
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.artefact import Artefact, Role
from partitioning.model.graph import quote
from partitioning.model.plan import PlannedWrite
from spark_jobs.engine.arrays import mask, numbers
from spark_jobs.engine.task_database import connect
from spark_jobs.tables.table_schema import key_schema


def dying(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[DeadRows]:
    """The rows that a batch, which left these files, replaces in a table or takes away, by file.

    Raises Refused if other rows would die than those of its keys, and Coset's errors if a file cannot be read.
    """
    # No two runs of a task write files of one name. Receipts have them in another order than verdicts.
    return log.once(frozenset(file.path for file in files), lambda: _proved(log, store, write, files))


def count_dying(rows: Iterable[DeadRows]) -> Counter[int]:
    """How many rows of each partition die."""
    count = Counter[int]()
    for each in rows:
        count[each.file.partition] += len(each.rows)
    return count


def without_keys(
    rows: pa.RecordBatchReader,
    store: Store,
    write: PlannedWrite,
    files: Sequence[Artefact],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows of a table that a batch, which left these files, neither replaces nor takes away."""
    with connect() as connection:
        keys, _ = _touched(store, write, files)
        connection.register("keys", keys)
        connection.register("there", rows)
        listed = ", ".join(f"there.{quote(name)}" for name in columns)
        asked = f"SELECT {listed} FROM there ANTI JOIN keys ON {met(key_schema(write))}"
        yield from connection.sql(asked).to_arrow_reader()


def _proved(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[DeadRows]:
    beside = {part.partition for file in files for part in file.parts if write.is_beside(part.partition)}
    if not beside:
        return []
    touched, replaced = _touched(store, write, files)
    read = FileKeys(log, key_schema(write))
    # Each file is proved before the next is read.
    return proved(log, read, _dying(log, read, beside, touched), touched, replaced)


def _dying(log: TableLog, read: FileKeys, beside: Collection[int], keys: pa.Table) -> Iterator[DeadRows]:
    place, contents = store_at(log.table_uri), dict[str, bytes | None]()
    for file in live_files(log):
        if file.partition not in beside:
            continue
        before = deletion_vectors.dead(place, file.vector, contents)
        found, of = _having(read, file, keys)
        rows = found.filter(mask(~np.isin(found[ROW].to_numpy(), before.to_array())))
        if len(rows):
            yield DeadRows(file, rows, before | BitMap64(rows[ROW].to_numpy()), of)


def _touched(store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> tuple[pa.Table, pa.Table]:
    """The keys of the rows that a batch replaces or takes away, or writes beside others; and those of the first two."""
    replaced = _keys_of(store, write, (file for file in files if file.role is Role.REPLACED))
    beside = (file for file in files if any(write.is_beside(part.partition) for part in file.parts))
    return pa.concat_tables([replaced, _keys_of(store, write, beside)]), replaced


def _keys_of(store: Store, write: PlannedWrite, files: Iterable[Artefact]) -> pa.Table:
    schema = key_schema(write)
    return pa.concat_tables([schema.empty_table(), *(_keys(store.uri(file.path), schema) for file in files)])


def _keys(uri: str, schema: pa.Schema) -> pa.Table:
    with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
        return pq.read_table(source, columns=schema.names).select(schema.names).cast(schema)


def _having(read: FileKeys, file: LiveFile, keys: pa.Table) -> tuple[pa.Table, int]:
    """The rows of a file that have one of the keys: the columns of the key, and their numbers. And how many it has."""
    placed = keys.schema.append(pa.field(ROW, pa.int64()))
    near, first = [placed.empty_table()], 0
    for there in read.of(file):
        known = [_among(*each) for each in zip(there.columns, keys.columns, strict=True)]
        (rows,) = np.nonzero(np.logical_and.reduce(known))
        near.append(there.take(numbers(rows)).append_column(placed.field(ROW), numbers(rows + first)))
        first += len(there)
    found = pa.concat_tables(near)
    if keys.num_columns == 1 or not len(found):
        return found, first
    # A row may have each value of a key of several columns, and yet be of another key.
    with connect() as connection:
        connection.register("keys", keys)
        connection.register("there", found)
        both = connection.sql(f"FROM there SEMI JOIN keys ON {met(keys.schema)}").to_arrow_table()
    return both.cast(placed), first


def _among(column: pa.ChunkedArray, values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.is_in(column, value_set=values).to_numpy())
