"""Receipts: what the tasks of a group report that they read, skipped and wrote. The proof is made from them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from partitioning.model.artefact import Artefact, Role
from partitioning.model.occasion import Occasion
from partitioning.model.offsets import Span
from partitioning.model.plan import TaskRef
from partitioning.values import Document, Value

# Digests of offsets are numbers modulo this prime. BASE is a primitive root of it, taken from the bits of the golden
# ratio. So no two offsets have the same summand.
MODULUS = 2**61 - 1
BASE = 0x13C6EF372FE94F8E


def offset_digest(offset: int) -> int:
    """The summand of one offset in an order-independent digest. Summands add up modulo MODULUS.

    >>> offset_digest(0), offset_digest(1) == BASE, offset_digest(2) == BASE * BASE % MODULUS
    (1, True, True)
    """
    return pow(BASE, offset, MODULUS)


def range_digest(start: int, end: int) -> int:
    """The digest of the offsets [start, end): the sum of `offset_digest` of each, computed as a geometric series.

    >>> range_digest(3, 5) == (offset_digest(3) + offset_digest(4)) % MODULUS
    True
    """
    return (offset_digest(end) - offset_digest(start)) * pow(BASE - 1, -1, MODULUS) % MODULUS


class Violation(StrEnum):
    """How a record breaks a rule: its offset is out of order, its key hashes to another partition or to another task,
    or it lacks a key where the stream refuses that."""

    OFFSET = "offset"
    FOREIGN = "foreign"
    STRAY = "stray"
    NULL_KEY = "null key"


class Offender(Value, frozen=True, order=True):
    """A record that breaks a rule, and which."""

    violation: Violation
    partition: int
    offset: int
    key: str | None


class HeavyKey(Value, frozen=True, order=True):
    """A frequent key of a stream partition: at least `records` of the records that a task took have it."""

    key: str
    records: int


class GapsSeen(Value, frozen=True):
    """The gaps between the records that a task read: how many, and `some` of them, evenly spread. All of them if they
    are few."""

    count: int
    some: tuple[Span, ...]


class PartitionReceipt(Value, frozen=True, omit_defaults=True):
    """What one task saw of one partition of an input, in the planned range [start, end).

    `read` counts the records in the range, `taken` those of this task, `dropped` those without a key that this task
    accounts for. `nulls` counts records without a key among those taken or, under `refuse`, among those that this task
    accounts for. `digest` sums `offset_digest` of taken and dropped records modulo MODULUS, in hexadecimal. `disorder`
    counts offsets out of order, `foreign` records whose key does not hash to the partition, `stray` taken records whose
    key hashes to another task. `keys` counts the distinct sampled keys. `offenders` has the first of each violation.
    `heavy` has the keys of a twentieth or more of the records taken, most frequent first. For a sparse stream, `held`
    is the digest of all records read. For a topic read from its broker, `reached` is the offset up to which it was
    read, and `gaps` are those that the reader saw.
    """

    input: str
    partition: int
    start: int
    end: int
    read: int
    taken: int
    dropped: int
    nulls: int
    digest: str
    disorder: int
    foreign: int
    stray: int
    keys: int
    offenders: tuple[Offender, ...]
    heavy: tuple[HeavyKey, ...]
    held: str = ""
    reached: int | None = None
    gaps: GapsSeen | None = None


def least_and_most_read(seen: Iterable[PartitionReceipt]) -> tuple[int, int]:
    """The least and the greatest number of records that tasks of one stage read of a partition.

    Ranges that different tasks read are added up, because none reads all.
    """
    by_range: dict[tuple[int, int], list[int]] = {}
    for receipt in seen:
        by_range.setdefault((receipt.start, receipt.end), []).append(receipt.read)
    return sum(map(min, by_range.values())), sum(map(max, by_range.values()))


def records_by_readers(start: int, end: int, seen: Iterable[PartitionReceipt]) -> int:
    """How many records the offsets [start, end) hold by the reader that saw most. Offsets behind the place that a
    reader reached count as records, because nobody has looked there."""
    seen = tuple(seen)
    if not seen:
        return end - start
    reached: dict[tuple[int, int], int] = {}
    for receipt in seen:
        by_now = receipt.start if receipt.reached is None else receipt.reached
        span = receipt.start, receipt.end
        reached[span] = min(by_now, reached.get(span, receipt.end))
    return least_and_most_read(seen)[1] + sum(end - by_now for (_, end), by_now in reached.items())


class Made(Value, frozen=True, omit_defaults=True):
    """How many rows a task's steps made for a table, exchange, result or state, counted before the writer got them.

    For an upserted table, `parts` are the partitions to rewrite, ascending, each with its rows. `records` is their sum.
    """

    role: Role
    name: str
    records: int
    parts: tuple[tuple[int, int], ...] = ()


class Apart(Value, frozen=True):
    """The records of a step whose event time does not count, because it is infinite or too far ahead. `first` has keys
    and times of some, as text."""

    step: str
    records: int
    first: tuple[tuple[str, str], ...]


class TaskReceipt(Value, frozen=True, omit_defaults=True):
    """What one task did: what it saw of each partition, the files it wrote, and how many rows its steps made for them.

    `milliseconds` is its working time; sizing uses it, publication does not. `cpu_milliseconds` is the CPU time that
    its process took meanwhile; that of Spark's JVM is not known. Tasks of earlier versions omit it and `made`. `apart`
    has the records whose times do not count, by step.
    """

    task: TaskRef
    partitions: tuple[PartitionReceipt, ...]
    artefacts: tuple[Artefact, ...]
    milliseconds: int
    made: tuple[Made, ...] | None = None
    apart: tuple[Apart, ...] = ()
    cpu_milliseconds: int | None = None

    def left(self, role: Role) -> tuple[Artefact, ...]:
        """The files that it wrote for one purpose."""
        return tuple(artefact for artefact in self.artefacts if artefact.role == role)


class Receipt(Document, frozen=True, omit_defaults=True):
    """What one run of a task group did, and when. The first stored receipt of an attempt counts. Those of earlier
    versions omit `ran`."""

    FORMAT: ClassVar[str] = "coset.receipt/5"

    plan: str
    group: int
    attempt: int
    tasks: tuple[TaskReceipt, ...]
    ran: Occasion | None = None
