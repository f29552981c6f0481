"""Placing: whose the rows are that a function on DataFrames made, by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from coset.sources.arrow_schema import arrow_schema
from partitioning.model.graph import Step
from partitioning.model.order import Order
from partitioning.model.placement import MURMUR2, OPAQUE, Placement
from partitioning.model.streams import Column
from partitioning.values import Value
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.given import PLACE

# How many rows of a place were sent, told in a row of its own, so that a lost or doubled one is noticed.
COUNT = "@count"
# The order of the task at a place, in a row of its own.
ORDER = "@order"
MARKS = (pa.field(PLACE, pa.int32()), pa.field(COUNT, pa.int64()), pa.field(ORDER, pa.binary()))


class Placing(Value, frozen=True):
    """How the rows of a step are dealt to so many `places`, those of the tasks of a group.

    Under the coset rule, `owners` has for some residues of h(key) modulo `cosets` the place of the task that owns it;
    without it rows go to the places by their hash. `keyless` is where those go that have no key.
    """

    key: str
    key_type: str
    placement: Placement
    places: int
    cosets: int
    owners: dict[int, int]
    keyless: int

    @classmethod
    def of(cls, step: Step, orders: Sequence[Order]) -> Placing:
        """That of a step in the tasks of a group that have it."""
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
    def tells(self) -> bool:
        """Whether keys say to which place rows go."""
        return bool(self.key) and self.placement.hash != OPAQUE

    def of_rows(self, rows: pa.RecordBatch) -> np.ndarray:
        """The place of each row (int64). A key that is no task's goes to the first, whose check refuses it."""
        if self.places == 1:
            return np.zeros(len(rows), np.int64)
        (field,) = arrow_schema((Column(self.key, self.key_type),))
        try:
            keys = rows.column(self.key).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # It is the types that will be refused.
            return np.zeros(len(rows), np.int64)
        hashes = placement_hashes(keys, self.placement.key_format, self.placement.hash)
        if self.owners:
            places = np.zeros(self.cosets, np.int64)
            places[list(self.owners)] = list(self.owners.values())
            placed: np.ndarray = places[(hashes % hashes.dtype.type(self.cosets)).astype(np.int64)]
        else:
            placed = (hashes % hashes.dtype.type(self.places)).astype(np.int64)
        if keys.null_count:
            placed[keys.is_null().to_numpy(zero_copy_only=False)] = self.keyless
        return placed


def dealing(placing: Placing) -> partial[Iterator[pa.RecordBatch]]:
    """What Spark's `mapInArrow` calls on the rows that a function made; it gives them with `MARKS`."""
    return partial(_dealt, placing)


def _dealt(placing: Placing, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts, schema = np.zeros(placing.places, np.int64), None
    for batch in batches:
        schema = schema or pa.schema([*batch.schema, *MARKS])
        places = placing.of_rows(batch)
        counts += np.bincount(places, minlength=placing.places)
        marks = [numbers(places).cast(pa.int32()), *(pa.nulls(len(batch), field.type) for field in MARKS[1:])]
        yield pa.RecordBatch.from_arrays([*batch.columns, *marks], schema=schema)
    if schema is not None:
        (sent,) = np.nonzero(counts)
        marks = [numbers(sent).cast(pa.int32()), numbers(counts[sent]), pa.nulls(len(sent), pa.binary())]
        nothing = [pa.nulls(len(sent), field.type) for field in list(schema)[: -len(MARKS)]]
        yield pa.RecordBatch.from_arrays([*nothing, *marks], schema=schema)


def _placement(step: Step, order: Order) -> Placement:
    """Where the records lie that reach a step: equal keys met on their way to it, so all lie by the same hash."""
    steps = {made.name: made for made in order.steps}
    name = step.inputs[0]
    while name in steps:
        name = steps[name].inputs[0]
    return next(ordered.placement for ordered in order.inputs if ordered.relation == name)
