"""Table parts: partitions of an upserted table, the files and rows of each, and which of them a batch writes; and
buckets, the partitions that Iceberg's transform `bucket` of the key gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import gcd

from partitioning.model.graph import StateSpec
from partitioning.model.placement import KeyFormat, Placement, bucket_hash
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.sections import many
from partitioning.values import Value

# A batch that may change more than one of so many rows writes whole partitions: that is no dearer then.
SMALL = 4
# More than so many dead rows for each hundred that live, or so many files, and a partition is written again.
DEAD_PERCENT = 25
MOST_FILES = 64


class TablePart(Value, frozen=True, order=True):
    """A partition of an upserted table: its files, the rows that live, and those that are dead. The batch `base` wrote
    the largest file; it is None if others have put all rows into files of theirs."""

    partition: int
    files: int
    rows: int
    dead: int
    base: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether the next batch writes it again: it has too many dead rows, or too many files.

        >>> [TablePart(0, files, 100, dead).is_due for files, dead in ((64, 25), (65, 0), (2, 26))]
        [False, True, True]
        """
        return self.files > MOST_FILES or self.dead * 100 > self.rows * DEAD_PERCENT


def is_small(records: int, parts: Iterable[TablePart]) -> bool:
    """Whether a batch of so many records changes few of a table's rows.

    >>> is_small(2, [TablePart(0, 1, 8, 0)]), is_small(3, [TablePart(0, 1, 8, 0)]), is_small(0, [])
    (True, False, True)
    """
    return records * SMALL <= sum(part.rows for part in parts)


class Upkeep(Value, frozen=True):
    """How near a table is to having partitions written again: its dead rows, the most files of a partition, and how
    many partitions the next batch writes again.

    >>> str(Upkeep.of("spent", [TablePart(0, 3, 90, 10)]))
    'Table spent: 10 of its rows are dead, and a partition has up to 3 files.'
    >>> print(str(Upkeep.of("spent", [TablePart(0, 70, 100, 0)])).partition("; ")[2])
    1 partition is written again by the next batch.
    """

    table: str
    dead: int
    files: int
    due: int

    @classmethod
    def of(cls, table: str, parts: Sequence[TablePart]) -> Upkeep:
        most = max((part.files for part in parts), default=0)
        return cls(table, sum(part.dead for part in parts), most, sum(part.is_due for part in parts))

    def __str__(self) -> str:
        verb, one = ("is" if self.due == 1 else "are"), "is" if self.dead == 1 else "are"
        then = f"; {many(self.due, 'partition')} {verb} written again by the next batch" if self.due else ""
        said = f"{self.dead:,} of its rows {one} dead, and a partition has up to {many(self.files, 'file')}"
        return f"Table {self.table}: {said}{then}."


def alone(placement: Placement, cosets: int, owns: Collection[int]) -> frozenset[int]:
    """The partitions whose keys all belong to the task with these residues modulo the cosets of its stage.

    In other partitions no task can tell whether another task has keys.

    >>> sorted(alone(Placement("k", "string", "murmur2", 8), 4, {1}))
    [1, 5]
    >>> four = Placement("k", "string", "murmur2", 4)
    >>> sorted(alone(four, 8, {1})), sorted(alone(four, 8, {1, 2, 5}))
    ([], [1])
    """
    step = gcd(placement.partitions, cosets)
    whole = {first for first in range(step) if all(residue in owns for residue in range(first, cosets, step))}
    return frozenset(number for number in range(placement.partitions) if number % step in whole)


def is_written(partition: int, mine: Collection[int], write: PlannedWrite, *, has_new: bool) -> bool:
    """Whether a batch writes to a partition of an upserted table, rather than leave the files that are there.

    It does if the whole table is written anew, if the partition `has_new` records or is merged, and where others may
    have some: if it is none of the task's own, `mine`. Beside the rows that are there it writes new ones alone.

    >>> from partitioning.model.graph import Write
    >>> from partitioning.model.table_mode import Mode
    >>> write = PlannedWrite(Write("spent", "totals", "k", False, (), Mode.UPSERT), ())
    >>> [is_written(partition, {0, 1}, write, has_new=partition == 1) for partition in range(3)]
    [False, True, True]
    >>> beside = PlannedWrite(write.declared, (), beside=True, merged=(0,))
    >>> [is_written(partition, {0, 1}, beside, has_new=partition == 1) for partition in range(3)]
    [True, True, False]
    """
    if write.beside:
        return has_new or partition in write.merged
    return write.anew or has_new or partition not in mine


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
    state = next(step.state for step in plan.steps if step.name == write.declared.step)
    if not isinstance(state, StateSpec) or (lies := state.placement) is None:
        return None
    key = next((column for column in write.columns if column.name == write.declared.key), None)
    fits = lies.hash == bucket_hash(lies.key_format) and key is not None and key.type == _TYPES.get(lies.key_format)
    return Buckets(lies.partitions, key.name) if fits and key and lies.key == key.name else None
