"""Given: the files that the tasks of a group wrote for a step on DataFrames, as Spark's workers read them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.files import Files, version
from coset.sources.s3 import AGAIN, reaching
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.receipt import Artefact
from partitioning.values import Value
from spark_jobs.engine.arrays import numbers
from spark_jobs.tables.table_schema import wider

# The number of a row's task in the group, and the row's number in that task's file.
PLACE = "@place"
ROW = "@row"


class Given(Value, frozen=True):
    """The file that a task wrote for a step. `place` is the task's number in its group."""

    place: int
    store: str
    file: Artefact

    @property
    def uri(self) -> str:
        return f"{self.store}/{self.file.path}"

    def batches(self, columns: list[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The file's rows, or some columns by number. Raises Refused if the file is not the one that the task wrote."""
        options = pa.ipc.IpcReadOptions(included_fields=columns)
        then = (AGAIN, ": it runs the group again")
        with reaching("the file cannot be read", self.uri, then), Files().open(self.uri) as file:
            if version(self.uri, file) != (self.file.size, self.file.etag):
                what = "the file has changed since the task wrote it"
                raise Refused.of(Kind.TASK_FILES, what, self.uri, then, file=self.uri)
            read = 0
            for batch in pa.ipc.open_stream(file, options=options):
                read += len(batch)
                yield batch
        if read != self.file.records:
            what = f"{read:,} rows were read, {self.file.records:,} were written"
            raise Refused.of(Kind.TASK_FILES, what, self.uri, then, read=read, records=self.file.records)

    def schema(self) -> pa.Schema:
        """The file's own schema."""
        with reaching("the file cannot be read", self.uri, AGAIN), Files().open(self.uri) as file:
            return pa.ipc.open_stream(file).schema


def frame_schema(left: pa.Schema) -> pa.Schema:
    """The schema of a DataFrame of such files: their columns in types that Spark knows, `PLACE` and `ROW`."""
    return pa.schema([*wider(left), pa.field(PLACE, pa.int32()), pa.field(ROW, pa.int64())])


def reading(schema: pa.Schema) -> partial[Iterator[pa.RecordBatch]]:
    """The function for Spark's `mapInArrow`. Each input row names a file in its column `file`."""
    return partial(_read, schema)


def _read(schema: pa.Schema, files: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for documents in files:
        for document in documents["file"].to_pylist():
            given = msgspec.json.decode(document, type=Given)
            first = 0
            for batch in given.batches():
                place = pa.repeat(pa.scalar(given.place, pa.int32()), len(batch))
                row = numbers(np.arange(first, first + len(batch)))
                first += len(batch)
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=False)]
                yield pa.RecordBatch.from_arrays([*columns, place, row], schema=schema)


def keys_given(given: Given, key: str) -> Iterator[pa.Array]:
    """The keys of the rows, each once in a batch."""
    place = given.schema().get_field_index(key)
    for batch in given.batches([place]):
        yield pc.unique(batch.column(0))
