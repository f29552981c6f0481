"""Receipts: what the tasks of a group report that they read, skipped and wrote. The proof is made from them.
Artefacts: files that tasks left, by their role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import ClassVar

from msgspec import UNSET, UnsetType

from partitioning.model.journal import Occasion
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.watermarks import LatestTimes
from partitioning.sections import many, size
from partitioning.values import Document, Value


class Role(StrEnum):
    """What a file is for: rows of a result table; sampled keys for the audit; rows for later tasks, moved by an
    exchange or left in place as a result; state for later batches; the input of a step on Spark's DataFrames; the
    records that a task set aside; or the keys of which new rows were written beside the rows that they replace."""

    TABLE = "table"
    KEYS = "keys"
    EXCHANGE = "exchange"
    RESULT = "result"
    STATE = "state"
    GIVEN = "given"
    SET_ASIDE = "set aside"
    REPLACED = "replaced"


class PartitionSlice(Value, frozen=True, order=True, array_like=True):
    """The rows of one partition in a file: `records` of them, in the bytes [start, end)."""

    partition: int
    start: int
    end: int
    records: int


class Artefact(Value, frozen=True, order=True, omit_defaults=True):
    """A file that a task wrote. `name` is a result table, an input, or the group or stage whose keys it holds.

    `path` is its key below the store's root, `digest` the SHA-256 of its `size` bytes, `etag` the store's own. A file
    for later tasks is sorted by partition: `parts` lists the partitions that have rows, ascending. In a file of state,
    `task` is the task that wrote it and `latest` the greatest `@time` of its rows, if they have one. `seal` stands for
    the footer of a stored file of a table, as the task looked at it when it had written the file, and `bounds` are
    what the table's log says of its columns.
    """

    role: Role
    name: str
    path: str
    size: int
    etag: str
    digest: str
    records: int
    parts: tuple[PartitionSlice, ...] = ()
    task: int = 0
    latest: int | None = None
    seal: str = ""
    bounds: str = ""


def files_of(files: Iterable[Artefact], table: str) -> tuple[Artefact, ...]:
    """Those of these files that are of a result table: its rows, and the keys of rows that are replaced."""
    return tuple(file for file in files if file.name == table and file.role in (Role.TABLE, Role.REPLACED))


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
    it lacks a key where the stream refuses that, or it cannot be used and is set aside."""

    OFFSET = "offset"
    FOREIGN = "foreign"
    STRAY = "stray"
    NULL_KEY = "null key"
    SET_ASIDE = "set aside"


class Offender(Value, frozen=True, order=True, omit_defaults=True):
    """A record that breaks a rule, and which. Of one that is set aside, `why` it cannot be used."""

    violation: Violation
    partition: int
    offset: int
    key: str | None
    why: str = ""


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
    accounts for. `nulls` counts records without a key among those taken or, under `refuse`, among those that this
    task accounts for. `digest` sums `offset_digest` of taken, dropped and set-aside records modulo MODULUS, in
    hexadecimal. `disorder` counts offsets out of order, `foreign` records whose key does not hash to the partition,
    `stray` taken records whose key hashes to another task. `keys` counts the distinct sampled keys. `offenders` has
    the first of each violation. `heavy` has the keys of a twentieth or more of the records taken, most frequent
    first. For a sparse stream, `held` is the digest of all records read. For a topic read from its broker,
    `reached` is the offset up to which it was read, and `gaps` are those that the reader saw. `set_aside` counts
    records that cannot be used, and `digest_aside` is the digest of their offsets. `latest` is the latest event time of
    the records taken, in microseconds, if their stream says when they happened and some time counts.
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
    set_aside: int = 0
    digest_aside: str = ""
    latest: int | None = None


def least_and_most_read(seen: Iterable[PartitionReceipt]) -> tuple[int, int]:
    """The least and the greatest number of records that tasks of one stage read of a partition.

    Ranges that different tasks read are added up, because none reads all.
    """
    by_range: dict[tuple[int, int], list[int]] = {}
    for receipt in seen:
        by_range.setdefault((receipt.start, receipt.end), []).append(receipt.read)
    return sum(map(min, by_range.values())), sum(map(max, by_range.values()))


def records_by_readers(start: int, end: int, seen: Iterable[PartitionReceipt]) -> int:
    """How many records the offsets [start, end) have, by the reader that saw most. Offsets that no reader reached count
    as records."""
    seen = tuple(seen)
    if not seen:
        return end - start
    reached: dict[tuple[int, int], int] = {}
    for receipt in seen:
        by_now = receipt.start if receipt.reached is None else receipt.reached
        span = receipt.start, receipt.end
        reached[span] = min(by_now, reached.get(span, receipt.end))
    return least_and_most_read(seen)[1] + sum(end - by_now for (_, end), by_now in reached.items())


class Changed(Value, frozen=True, array_like=True):
    """How many rows of a partition of an upserted table went and came."""

    partition: int
    gone: int
    come: int


class Keyed(Value, frozen=True):
    """How many rows there are, and the digest of their keys, which does not depend on their order, in hexadecimal."""

    rows: int
    digest: str


class Made(Value, frozen=True, omit_defaults=True):
    """How many rows a task's steps made for a table, exchange, result or state, counted before the writer got them.

    For an upserted table, `parts` are the partitions to rewrite, ascending, each with its rows. `records` is their sum.
    Of each partition where this batch has keys, `changed` counts the former rows of these keys, which went, and the
    rows in their place. Earlier versions omit it. `replaced` are the keys whose rows go where new ones are written
    beside them.
    """

    role: Role
    name: str
    records: int
    parts: tuple[tuple[int, int], ...] = ()
    changed: tuple[Changed, ...] | None = None
    replaced: Keyed | None = None


class Apart(Value, frozen=True):
    """The records of a step whose event time does not count, because it is infinite or too far ahead. `first` has keys
    and times of some, as text."""

    step: str
    records: int
    first: tuple[tuple[str, str], ...]


class Migrated(Value, frozen=True):
    """The rows that a task kept of a step `before` and `after` it made new ones of them."""

    step: str
    before: Keyed
    after: Keyed


class GivenVersions(Value, frozen=True):
    """The records that were `given` with a version, and how many versions came `late`: when records that they are valid
    for may have been given."""

    given: Keyed
    late: int


class Closed(Value, frozen=True, omit_defaults=True):
    """The records of a side of a join in time that were `over` in a batch, those of them that had `met` a partner, and
    those that were given `alone`. `late` counts those that came when their time was over.

    Of windows, the records whose windows were over, none that met any, and those that were given in a window. `dropped`
    counts new records that are in no window, as they came too late or have no time that counts. A
    join as of a time has `versions`."""

    step: str
    over: Keyed
    met: Keyed
    alone: Keyed
    late: int
    dropped: int = 0
    versions: GivenVersions | None = None


class Shortage(Value, frozen=True):
    """A task of `memory` bytes had too little for all of its keys at once. `parts` has the steps, states and streams
    that were done for some keys after the others, each with how many parts."""

    memory: int
    parts: tuple[tuple[str, int], ...]


class TaskReceipt(Value, frozen=True, omit_defaults=True):
    """What one task did: what it saw of each partition, the files it wrote, and how many rows its steps made for them.

    `milliseconds` is its working time; sizing uses it, publication does not. `cpu_milliseconds` is the CPU time that
    its process took meanwhile; that of Spark's JVM is not known. Tasks of earlier versions omit it, `made` and
    `location`, which says where the task ran. `apart` has the records whose times do not count, by step. `migrated` has
    the steps of which it wrote all kept rows again, `closed` what was over of joins and windows that wait. `shortage`
    says that it lacked memory.
    """

    task: TaskRef
    partitions: tuple[PartitionReceipt, ...]
    artefacts: tuple[Artefact, ...]
    milliseconds: int
    made: tuple[Made, ...] | None = None
    apart: tuple[Apart, ...] = ()
    cpu_milliseconds: int | None = None
    migrated: tuple[Migrated, ...] = ()
    location: str = ""
    closed: tuple[Closed, ...] = ()
    shortage: Shortage | None = None

    def left(self, role: Role) -> tuple[Artefact, ...]:
        """The files that it wrote for one purpose."""
        return tuple(artefact for artefact in self.artefacts if artefact.role == role)


class Receipt(Document, frozen=True, omit_defaults=True):
    """What one run of a task group did, when and at which `location`. The first stored receipt of an attempt counts.
    Those of earlier versions omit `ran` and `location`. `code` has the digests of users' functions, by import path,
    where tasks ran: several if processes had different code. `keys` is the file of the keys that its tasks sampled; in
    earlier versions each task has one."""

    FORMAT: ClassVar[str] = "coset.receipt/5"

    plan: str
    group: int
    attempt: int
    tasks: tuple[TaskReceipt, ...]
    ran: Occasion | None = None
    code: dict[str, tuple[str, ...]] | UnsetType = UNSET
    location: str = ""
    keys: Artefact | None = None

    @property
    def artefacts(self) -> Iterator[Artefact]:
        """The files of the group and of its tasks."""
        if self.keys is not None:
            yield self.keys
        yield from (artefact for task in self.tasks for artefact in task.artefacts)


def latest_times(plan: Plan, tasks: Iterable[TaskReceipt]) -> tuple[LatestTimes, ...]:
    """The latest event times that tasks counted, of each stream that says when its records happened."""
    latest: dict[tuple[str, int], int] = {}
    for seen in (seen for task in tasks for seen in task.partitions):
        if seen.latest is not None:
            at = seen.input, seen.partition
            latest[at] = max(latest.get(at, seen.latest), seen.latest)
    return tuple(
        LatestTimes(stream.name, tuple(latest.get((stream.name, number)) for number in range(len(stream.partitions))))
        for stream in plan.streams
        if stream.declared.time
    )


def shortages(tasks: Iterable[TaskReceipt]) -> Iterator[str]:
    """In a sentence, what tasks lacked memory for and what would have been enough, if any did.

    >>> lacking = TaskReceipt(TaskRef("s", 0), (), (), 9, shortage=Shortage(10**9, (("met", 8),)))
    >>> list(shortages([lacking]))
    ['1.0 GB were too little for 1 task: met in 8 parts of its keys; more tasks or at most --memory 8000MB spare it']
    """
    lacking = [task.shortage for task in tasks if task.shortage]
    if not lacking:
        return
    parts: dict[str, int] = {}
    for name, count in chain.from_iterable(each.parts for each in lacking):
        parts[name] = max(parts.get(name, 0), count)
    done = ", ".join(f"{name} in {count} parts of its keys" for name, count in sorted(parts.items()))
    memory = max(each.memory for each in lacking)
    # Each part had enough of it.
    enough = memory * max((2, *parts.values()))
    yield (
        f"{size(memory)} were too little for {many(len(lacking), 'task')}: {done or 'run twice'}; "
        f"more tasks or at most --memory {-(-enough // 10**6)}MB spare it"
    )
