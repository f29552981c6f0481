"""Buckets: upserted tables whose partitions are those that Iceberg's transform `bucket` of their key has."""

from __future__ import annotations

from partitioning.model.graph import StateSpec
from partitioning.model.placement import KeyFormat, bucket_hash
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.values import Value

# The type of columns whose values Iceberg hashes as keys of a format are hashed.
_TYPES = {KeyFormat.STRING: "VARCHAR", KeyFormat.BYTES: "BLOB", KeyFormat.LONG: "BIGINT"}


class Buckets(Value, frozen=True):
    """So many buckets of a key.

    >>> str(Buckets(8, "customer")), Buckets.parse("8 customer"), Buckets.parse("")
    ('8 customer', Buckets(count=8, key='customer'), None)
    """

    count: int
    key: str

    def __str__(self) -> str:
        return f"{self.count} {self.key}"

    @classmethod
    def parse(cls, text: str) -> Buckets | None:
        count, _, key = text.partition(" ")
        return cls(int(count), key) if text else None


def buckets_of(plan: Plan, write: PlannedWrite) -> Buckets | None:
    """The buckets that the partitions of a table are once the batch is published. None if it lies by another hash."""
    if not write.declared.mode.by_key:
        return None
    steps = (step for stage in plan.stages for step in stage.steps)
    state = next(step.state for step in steps if step.name == write.declared.step)
    if not isinstance(state, StateSpec) or (lies := state.placement) is None:
        return None
    key = next((column for column in write.columns if column.name == write.declared.key), None)
    fits = lies.hash == bucket_hash(lies.key_format) and key is not None and key.type == _TYPES.get(lies.key_format)
    return Buckets(lies.partitions, key.name) if fits and key and lies.key == key.name else None
