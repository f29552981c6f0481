"""Dead rows: finds the rows of an upserted table beside which a batch writes new ones, by their keys.

The table itself says where a key's row lies, as its log has it when the batch is published: whoever moves rows
meanwhile, by compaction for instance, changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from coset.batches.tables import deletion_vectors
from coset.batches.tables.live_files import LiveFile, live_files
from coset.batches.tables.log_copy import TableLog
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.artefact import Artefact, Role
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import quote
from partitioning.model.plan import PlannedWrite
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.task_database import connect
from spark_jobs.tables.table_schema import columns_of

_BATCH_ROWS = 1 << 16
# Where a row lies: the number of its file, and its own in that.
_FILE, _ROW = "@file", "@row"


@dataclass(frozen=True, slots=True)
class Dying:
    """A file of which a batch makes rows dead: `rows` are those, and `dead` all that are dead then."""

    file: LiveFile
    rows: BitMap64
    dead: BitMap64


def dying(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[Dying]:
    """The rows that a batch, which left these files, replaces in a table or takes away, by file.

    Raises Coset's errors if a file cannot be read.
    """
    # No two runs of a task write files of one name.
    return log.once(tuple(file.path for file in files), lambda: _dying(log, store, write, files))


def _dying(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[Dying]:
    beside = {part.partition for file in files for part in file.parts if write.is_beside(part.partition)}
    if not beside:
        return []
    keys, place = _touched(store, write, files), store_at(log.table_uri)
    contents = dict[str, bytes | None]()
    there = [
        (file, deletion_vectors.dead(place, file.vector, contents))
        for file in live_files(log)
        if file.partition in beside and file.written > file.dead
    ]
    found = _found(f"{log.table_uri.rstrip('/')}", there, keys)
    rows = [(file, BitMap64(found.get(number, ())) - dead, dead) for number, (file, dead) in enumerate(there)]
    return [Dying(file, new, new | dead) for file, new, dead in rows if new]


def without_keys(
    rows: pa.RecordBatchReader,
    store: Store,
    write: PlannedWrite,
    files: Sequence[Artefact],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows of a table that a batch, which left these files, neither replaces nor takes away."""
    keys = _touched(store, write, files)
    with connect() as connection:
        connection.register("keys", keys)
        connection.register("there", rows)
        listed = ", ".join(f"there.{quote(name)}" for name in columns)
        yield from connection.sql(f"SELECT {listed} FROM there ANTI JOIN keys ON {_met(keys)}").to_arrow_reader()


def by_partition(rows: Sequence[Dying]) -> Counter[int]:
    """How many rows of each partition die."""
    count = Counter[int]()
    for each in rows:
        count[each.file.partition] += len(each.rows)
    return count


def _touched(store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> pa.Table:
    """The keys of the rows that a batch replaces or takes away, and of those that it writes beside others."""
    every = columns_of(write)
    schema = pa.schema([every.field(name) for name in key_columns(write.declared.key)])
    read = (file for file in files if file.role is Role.REPLACED or _is_beside(write, file))
    return pa.concat_tables([schema.empty_table(), *(_keys(store.uri(file.path), schema) for file in read)])


def _is_beside(write: PlannedWrite, file: Artefact) -> bool:
    return any(write.is_beside(part.partition) for part in file.parts)


def _among(column: pa.Array, values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False))


def _met(keys: pa.Table) -> str:
    return " AND ".join(f"there.{quote(name)} IS NOT DISTINCT FROM keys.{quote(name)}" for name in keys.column_names)


def _keys(uri: str, schema: pa.Schema) -> pa.Table:
    with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
        return pq.read_table(source, columns=schema.names).select(schema.names).cast(schema)


def _found(where: str, there: Sequence[tuple[LiveFile, BitMap64]], keys: pa.Table) -> Mapping[int, np.ndarray]:
    """The rows of files, by number, that have one of the keys; some of them may be dead already."""
    schema = keys.schema
    placed = schema.append(pa.field(_FILE, pa.int64())).append(pa.field(_ROW, pa.int64()))

    def rows() -> Iterator[pa.RecordBatch]:
        for number, (file, _) in enumerate(there):
            uri, first = f"{where}/{file.path}", 0
            with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
                for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS, columns=schema.names):
                    columns = [batch[name].cast(field.type) for name, field in zip(schema.names, schema, strict=True)]
                    # Most rows have no value of a key in some column, and go no further.
                    near = np.logical_and.reduce([_among(*each) for each in zip(columns, keys.columns, strict=True)])
                    (rows,) = np.nonzero(near)
                    place = numbers(np.full(len(rows), number)), numbers(rows + first)
                    found = [column.take(numbers(rows)) for column in columns]
                    yield pa.RecordBatch.from_arrays([*found, *place], schema=placed)
                    first += len(batch)

    asked = f'SELECT "{_FILE}", "{_ROW}" FROM there SEMI JOIN keys ON {_met(keys)}'
    with connect() as connection:
        connection.register("keys", keys)
        connection.register("there", pa.RecordBatchReader.from_batches(placed, rows()))
        found = connection.sql(asked).to_arrow_table()
    number, row = (found[name].to_numpy() for name in (_FILE, _ROW))
    return {int(each): row[number == each] for each in np.unique(number)}
