"""Receipts: what the tasks of a group say they read, left out and wrote. The raw material of the proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partitioning.model.plan import TaskRef

MASK64 = 0xFFFF_FFFF_FFFF_FFFF


def offset_digest(offset: int) -> int:
    """One offset's part of an order-independent digest; parts add up modulo 2^64 (splitmix64, Steele 2014).

    >>> offset_digest(0), offset_digest(1)
    (16294208416658607535, 7960286522194355700)
    """
    z = (offset + 1) * 0x9E3779B97F4A7C15 & MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


@dataclass(frozen=True, order=True, slots=True)
class Offender:
    """A record that breaks a rule, and which: `foreign`, `stray`, `null key` or `offset`."""

    rule: str
    partition: int
    offset: int
    key: str | None


@dataclass(frozen=True, order=True, slots=True)
class HeavyKey:
    """A key that many records of a stream partition have: at least so many `records` of those that a task took."""

    key: str
    records: int


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """What one task saw of one stream partition in the planned range [start, end).

    `read` records lay in the range; `taken` of them are this task's, and `dropped` had no key and are
    accounted for by this task. `nulls` counts records without a key among those taken or, under the policy
    `refuse`, among those that this task accounts for. `digest` adds up `offset_digest` of taken and dropped
    records, in hexadecimal. `disorder` counts offsets that did not follow the one before, `foreign` records
    whose key does not hash to the partition, `stray` records taken whose key hashes to another task. `keys`
    distinct keys were sampled for the audit. `offenders` are the first of each rule. `heavy` are keys with a
    twentieth or more of the records taken, heaviest first.
    """

    stream: str
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


@dataclass(frozen=True, order=True, slots=True)
class WrittenFile:
    """A data file of an attempt: `path` is relative to the table, `etag` the store's."""

    table: str
    path: str
    size: int
    etag: str
    records: int


@dataclass(frozen=True, slots=True)
class TaskReceipt:
    """What one task did. `keys` names the object with its sampled keys, if it sampled any.

    It took `seconds` of work; sizing uses them, no decision on publication does.
    """

    task: TaskRef
    partitions: tuple[PartitionReceipt, ...]
    files: tuple[WrittenFile, ...]
    keys: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one run of a task group did; the first stored one of an attempt is the one that counts."""

    FORMAT: ClassVar[str] = "coset.receipt/1"

    plan: str
    group: int
    attempt: int
    tasks: tuple[TaskReceipt, ...]
