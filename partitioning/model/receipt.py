"""Receipts: what the tasks of a group say they read, left out and wrote. The raw material of the proof."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from partitioning.model.artefact import Artefact, Role
from partitioning.model.offsets import Span
from partitioning.model.plan import TaskRef
from partitioning.values import Document, Value

# Digests of offsets are numbers modulo this prime. BASE is a primitive root of it, the first from the golden ratio's
# bits on, so no two offsets have the same part.
MODULUS = 2**61 - 1
BASE = 0x13C6EF372FE94F8E


def offset_digest(offset: int) -> int:
    """One offset's part of an order-independent digest; parts add up modulo MODULUS.

    >>> offset_digest(0), offset_digest(1) == BASE, offset_digest(2) == BASE * BASE % MODULUS
    (1, True, True)
    """
    return pow(BASE, offset, MODULUS)


def range_digest(start: int, end: int) -> int:
    """The digest of the offsets [start, end): `offset_digest` of each, added up, as a geometric sum.

    >>> range_digest(3, 5) == (offset_digest(3) + offset_digest(4)) % MODULUS
    True
    """
    return (offset_digest(end) - offset_digest(start)) * pow(BASE - 1, -1, MODULUS) % MODULUS


class Violation(StrEnum):
    """How a record breaks a rule: its offset does not follow the one before, its key does not hash to the partition
    it lies in, or to the task that took it, or it has no key where its stream refuses such."""

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
    """A key that many records of a stream partition have: at least so many `records` of those that a task took."""

    key: str
    records: int


class GapsSeen(Value, frozen=True):
    """The gaps between the records that a task read: how many, and `some` of them, spread evenly; all, if there are
    few."""

    count: int
    some: tuple[Span, ...]


class PartitionReceipt(Value, frozen=True, omit_defaults=True):
    """What one task saw of one partition of an input of its stage, in the planned range [start, end).

    `read` records lay in the range; `taken` of them are this task's, and `dropped` had no key and are accounted for
    by this task. `nulls` counts records without a key among those taken or, under the policy `refuse`, among those
    that this task accounts for. `digest` adds up `offset_digest` of taken and dropped records, modulo MODULUS and
    in hexadecimal. `disorder` counts offsets that did not follow the one before, `foreign` records whose key does
    not hash to the partition, `stray` records taken whose key hashes to another task. `keys` distinct keys were
    sampled for the audit. `offenders` are the first of each violation. `heavy` are keys with a twentieth or more of
    the records taken, heaviest first. Of a sparse stream `held` is the digest of all that were read, and of one that
    is read from its broker `reached` is the offset up to which it was read, and `gaps` are those that it was given.
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
    """How many records tasks of one stage read of a partition: those that read least of it, and those that read most.

    Ranges that different tasks read are added up, as none of them reads all.
    """
    by_range: dict[tuple[int, int], list[int]] = {}
    for receipt in seen:
        by_range.setdefault((receipt.start, receipt.end), []).append(receipt.read)
    return sum(map(min, by_range.values())), sum(map(max, by_range.values()))


def records_by_readers(start: int, end: int, seen: Iterable[PartitionReceipt]) -> int:
    """How many records the offsets [start, end) have by those who read most of them; what is behind the place that a
    reader reached counts as if it were records, because nobody has seen that it is not."""
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
    """How many rows a task's steps made for a table, an exchange, a result or state: counted before any of them was
    written, and not by the writer.

    Of an upserted table, `parts` are the partitions to write anew, ascending, each with its rows; `records` is their
    sum.
    """

    role: Role
    name: str
    records: int
    parts: tuple[tuple[int, int], ...] = ()


class Apart(Value, frozen=True):
    """The records of a step that keeps records for a time whose own time does not count: it is infinite, or too far
    ahead. `first` has the keys and times of some of them, as text."""

    step: str
    records: int
    first: tuple[tuple[str, str], ...]


class TaskReceipt(Value, frozen=True, omit_defaults=True):
    """What one task did: what it saw of each partition, the files it left, and what its steps made for these.

    It took so many `milliseconds` of work; sizing uses them, no decision on publication does. Tasks of earlier versions
    do not say what they `made`. `apart` are the records whose times do not count, by step.
    """

    task: TaskRef
    partitions: tuple[PartitionReceipt, ...]
    artefacts: tuple[Artefact, ...]
    milliseconds: int
    made: tuple[Made, ...] | None = None
    apart: tuple[Apart, ...] = ()

    def left(self, role: Role) -> tuple[Artefact, ...]:
        """The files that it left for one purpose."""
        return tuple(artefact for artefact in self.artefacts if artefact.role == role)


class Receipt(Document, frozen=True):
    """What one run of a task group did; the first stored one of an attempt is the one that counts."""

    FORMAT: ClassVar[str] = "coset.receipt/4"

    plan: str
    group: int
    attempt: int
    tasks: tuple[TaskReceipt, ...]
