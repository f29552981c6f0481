"""Row routing: finds the task of each row that a function on DataFrames returned, by its key. Given: the files of its
tasks, as workers read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import arrow_schema
from coset.sources.files import Files, version
from coset.sources.s3 import AGAIN, reaching
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.order import Order
from partitioning.model.placement import MURMUR2, OPAQUE, Placement
from partitioning.model.receipt import Artefact
from partitioning.model.streams import Column
from partitioning.values import Value
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import keyed, placement_hashes
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


# The number of rows sent to a place, in an extra row, so that a lost or doubled row is noticed.
COUNT = "@count"
# The order of the task at a place, in an extra row.
ORDER = "@order"
MARKS = (pa.field(PLACE, pa.int32()), pa.field(COUNT, pa.int64()), pa.field(ORDER, pa.binary()))


class RowRouting(Value, frozen=True):
    """How the rows of a step are routed to the `places` of a group's tasks.

    `owners` maps residues of h(key) modulo `cosets` to the place of the task that owns them. Without owners the hash
    alone chooses the place. Rows without a key go to `keyless`.
    """

    key: str
    key_type: str
    placement: Placement
    places: int
    cosets: int
    owners: dict[int, int]
    keyless: int

    @classmethod
    def of(cls, step: Step, orders: Sequence[Order]) -> RowRouting:
        """The routing of a step's rows among the tasks of these orders."""
        cosets = orders[0].cosets
        owners = {residue: place for place, order in enumerate(orders) for residue in order.task.owns}
        own = next((place for place, order in enumerate(orders) if order.task.null_keys), owners.get(0, 0))
        placement = Placement(step.key, step.key_format, MURMUR2, cosets)
        if step.rekeys:
            owners, own = {}, 0
        else:
            placement = _placement(step, orders[0])
        kind = next((column.type for column in step.columns if column.name == step.key), "")
        return cls(step.key, kind, placement, len(orders), cosets, owners, own)

    @property
    def by_key(self) -> bool:
        """Whether a row's key decides its place."""
        return bool(self.key) and self.placement.hash != OPAQUE

    def places_of(self, rows: pa.RecordBatch) -> np.ndarray:
        """The place of each row (int64). A key that no task owns goes to place 0, where the check refuses it."""
        if self.places == 1:
            return np.zeros(len(rows), np.int64)
        (field,) = arrow_schema((Column(self.key, self.key_type),))
        try:
            keys = rows.column(self.key).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # The check of types refuses these rows later.
            return np.zeros(len(rows), np.int64)
        hashes = placement_hashes(keys, self.placement.key_format, self.placement.hash)
        if self.owners:
            places = np.zeros(self.cosets, np.int64)
            places[list(self.owners)] = list(self.owners.values())
            placed: np.ndarray = places[(hashes % hashes.dtype.type(self.cosets)).astype(np.int64)]
        else:
            placed = (hashes % hashes.dtype.type(self.places)).astype(np.int64)
        if len(has_key := keyed(keys, hashes, self.placement.hash)):
            placed[~has_key] = self.keyless
        return placed


def routing(by: RowRouting) -> partial[Iterator[pa.RecordBatch]]:
    """The function for Spark's `mapInArrow` that adds `MARKS` to the rows that a function returned."""
    return partial(_routed, by)


def _routed(by: RowRouting, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts, schema = np.zeros(by.places, np.int64), None
    for batch in batches:
        schema = schema or pa.schema([*batch.schema, *MARKS])
        places = by.places_of(batch)
        counts += np.bincount(places, minlength=by.places)
        marks = [numbers(places).cast(pa.int32()), *(pa.nulls(len(batch), field.type) for field in MARKS[1:])]
        yield pa.RecordBatch.from_arrays([*batch.columns, *marks], schema=schema)
    if schema is not None:
        (sent,) = np.nonzero(counts)
        marks = [numbers(sent).cast(pa.int32()), numbers(counts[sent]), pa.nulls(len(sent), pa.binary())]
        nothing = [pa.nulls(len(sent), field.type) for field in list(schema)[: -len(MARKS)]]
        yield pa.RecordBatch.from_arrays([*nothing, *marks], schema=schema)


def _placement(step: Step, order: Order) -> Placement:
    """The placement of the records that reach a step. All inputs on the way share a hash, so any one of them tells."""
    steps = {made.name: made for made in order.steps}
    name = step.inputs[0]
    while name in steps:
        name = steps[name].inputs[0]
    return next(ordered.placement for ordered in order.inputs if ordered.relation == name)
