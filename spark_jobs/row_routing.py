"""Row routing: finds the task of each row that a function on DataFrames returned, by its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from coset.sources.file_columns import arrow_schema
from partitioning.model.graph import Step
from partitioning.model.order import Order
from partitioning.model.placement import MURMUR2, OPAQUE, Placement
from partitioning.model.streams import Column
from partitioning.values import Value
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import keyed, placement_hashes
from spark_jobs.given import PLACE

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
