"""The kernel obeys its orders: of real files it takes what the rule says, and counts what plain Python counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.files import Files
from coset.sources.landed_reader import LandedReader
from partitioning.documents.document import decode, encode
from partitioning.hashes import hash_of
from partitioning.model.order import Order, OrderedStream
from partitioning.model.placement import JAVA, MURMUR2, OPAQUE, HashName, KeyFormat
from partitioning.model.receipt import MODULUS, Offender, PartitionReceipt, Violation, offset_digest
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import NullKeys, Stream
from partitioning.model.takes import Disposition, Residues, Task, disposition, takes
from spark_jobs.engine.intake import Intake
from spark_jobs.engine.proof import OFFENDERS_KEPT
from tests.examples import examples
from tests.local_files import LocalFiles, record
from tests.orders import order, planned

Key = str | int | bytes
Keys = Sequence[Key | None]

KEYS: Mapping[KeyFormat, st.SearchStrategy[Key]] = {
    KeyFormat.STRING: st.text("ABCé0123456789", min_size=1, max_size=5),
    KeyFormat.LONG: st.integers(-(2**63) + 1, 2**63 - 1),
    KeyFormat.BYTES: st.binary(max_size=6),
}
# The last is a function of a user's own, whose hashes may have 64 bits.
HASHES = {
    KeyFormat.STRING: (MURMUR2, JAVA, OPAQUE, "builtins:len"),
    KeyFormat.LONG: (MURMUR2, JAVA, OPAQUE, "builtins:abs"),
    KeyFormat.BYTES: (MURMUR2, OPAQUE, "zlib:crc32"),
}


@dataclass(frozen=True)
class Log:
    """The records of a partition from offset `first` on, where a new file begins, and what of it is planned."""

    first: int
    keys: Keys
    cuts: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Case:
    """An order and what lies in the partitions that it reads, but for the files, which `landed` adds."""

    declared: Stream
    task: Task
    cosets: int
    lie_by: int
    only: tuple[int, ...] | None
    sample: int
    logs: Mapping[int, Log]


@dataclass(frozen=True)
class Read:
    """What a task reads: some partitions of a stream whose records lie by `lie_by`, of keys with these hashes."""

    declared: Stream
    lie_by: int
    partitions: tuple[int, ...]
    hashes: Sequence[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any order that reads one stream: a task for some keys, for any, or for records without a key."""
    key_format = draw(st.sampled_from(tuple(HASHES)))
    keys = draw(st.lists(KEYS[key_format], min_size=4, max_size=8, unique=True))
    # Hypothesis prefers what is small and alike; then hardly any task has records of its own beside others'.
    random = draw(st.randoms(use_true_random=True))
    partitions = random.randint(1, 6)
    declared = Stream(
        "views",
        "s3://test",
        "k",
        partitions,
        key_format=key_format,
        null_keys=random.choice(tuple(NullKeys)),
        hash=HashName(random.choice(HASHES[key_format])),
    )
    lie_by = random.choice([count for count in range(1, 7) if partitions % count == 0])
    only = random.choice((None, None, some(random, range(partitions))))
    numbers = some(random, range(partitions) if only is None else only)
    task, cosets = any_task(random, Read(declared, lie_by, numbers, [hash_in(declared, key) for key in keys]))
    held = {number: any_log(random, keys) for number in numbers}
    return Case(declared, task, cosets, lie_by, only, random.randint(1, 3), held)


def some(random: Random, numbers: Sequence[int]) -> tuple[int, ...]:
    """Any of these numbers, most of the time one at least."""
    least = min(len(numbers), random.choice((0, 1, 1, 1)))
    return tuple(sorted(random.sample(numbers, random.randint(least, len(numbers)))))


def any_log(random: Random, keys: Sequence[Key]) -> Log:
    """Some records and a range of them, which may begin and end in the middle of a file."""
    first = random.randint(0, 20)
    held = random.choices(random.choice((keys, [*keys, None])), k=random.choice((0, 5, 10, 40)))
    places = range(first, first + len(held) + 1)
    start, end = sorted(random.choices(places, k=2))
    return Log(first, held, tuple(sorted(random.choices(places, k=random.randint(0, 3)))), start, end)


def any_task(random: Random, read: Read) -> tuple[Task, int]:
    """A task that reads these partitions, and some of another stream, and the number of cosets of its stage."""
    numbers = {"views": read.partitions, "clicks": some(random, range(6))}
    if random.random() < 0.15:
        return Task(9, numbers, null_keys=True, keyless=numbers), 9
    kept, owns, cosets = any_rule(random, read)
    others = random.choice((None, any_residues(random, read)))
    filters = {name: rule for name, rule in (("clicks", others), ("views", kept)) if rule is not None}
    keyless = {name: some(random, partitions) for name, partitions in numbers.items()}
    return Task(0, numbers, filters, owns=owns, keyless=keyless), cosets


def any_rule(random: Random, read: Read) -> tuple[Residues | None, tuple[int, ...], int]:
    """What a task keeps of the stream, which residues it owns, and of how many cosets."""
    cosets = random.choice((random.randint(1, 12), read.lie_by * random.randint(1, 4)))
    if read.declared.hash == OPAQUE:
        return None, (), cosets
    kept = any_residues(random, read)
    finer = Residues(3 * kept.modulus, tuple(residue + kept.modulus for residue in kept.residues))
    return random.choice(
        (
            (None, (), cosets),
            (None, lying(read, cosets), cosets),
            (kept, (), cosets),
            (kept, kept.residues, kept.modulus),
            (kept, some(random, kept.residues), kept.modulus),
            (finer, kept.residues, kept.modulus),
        )
    )


def any_residues(random: Random, read: Read) -> Residues:
    """Residues of some of the keys and of one that may not be there, by a modulus that may be large."""
    modulus = random.choice((*range(1, 13), 300, 65_536, 1_000_003))
    several = {random.randrange(modulus), *(h % modulus for h in read.hashes if random.random() < 0.5)}
    return Residues(modulus, tuple(sorted(several)))


def lying(read: Read, cosets: int) -> tuple[int, ...]:
    """The residues of all keys that belong in the partitions read."""
    places = {number % read.lie_by for number in read.partitions}
    return tuple(sorted({h % cosets for h in range(read.lie_by * cosets) if h % read.lie_by in places}))


def landed(case: Case, files: LocalFiles) -> Order:
    """The order, its files written, as it is sent."""
    ranges = {number: _planned(case, number, log, files) for number, log in case.logs.items()}
    made = order(
        case.declared, case.task, ranges, cosets=case.cosets, lie_by=case.lie_by, only=case.only, sample=case.sample
    )
    return decode(Order, encode(made), "an order")


def _planned(case: Case, number: int, log: Log, files: LocalFiles) -> PlannedPartition:
    """The range of a partition, and those files that hold some of it."""
    edges = sorted({log.first, *log.cuts, log.first + len(log.keys)})
    written = [
        files.land("views", number, start, log.keys[start - log.first : end - log.first], case.declared.key_format)
        for start, end in pairwise(edges)
    ]
    held = [file for file in written if max(file.start, log.start) < min(file.end, log.end)]
    return planned(number, log.start, log.end, held)


@settings(max_examples=examples(300))
@given(cases())
def test_sql_is_given_what_is_the_tasks_and_the_receipt_counts_it(case: Case) -> None:
    with TemporaryDirectory() as folder:
        files = LocalFiles(Path(folder))
        made = landed(case, files)
        (ordered,) = made.inputs
        assert isinstance(ordered, OrderedStream)
        intake = Intake(made, ordered, LandedReader(ordered, Files(), made.pipeline))
        rows = None if intake.empty else pa.RecordBatchReader._import_from_c_capsule(intake.stream()).read_all()
        given_to_sql = rows["record"].to_pylist() if rows else []
        intake.drain()
        seen = {number: list(records(case, number)) for number in case.task.reads["views"]}
        every = [one for held in seen.values() for one in held]
        assert given_to_sql == [
            record(one.partition, one.offset) for one in every if one.disposition is Disposition.TAKEN
        ]
        assert all(
            takes(case.task, "views", one.partition, one.h) == (one.disposition is not Disposition.LEFT)
            for one in every
        )
        receipts = {each.partition: each for each in intake.receipts()}
        assert receipts == {number: receipt(case, number, held) for number, held in seen.items()}


@dataclass(frozen=True)
class Record:
    """A record in the planned range, and what becomes of it by the rule."""

    partition: int
    offset: int
    key: Key | None
    h: int | None
    disposition: Disposition


def records(case: Case, number: int) -> Iterator[Record]:
    """The planned records of a partition."""
    declared, log = case.declared, case.logs[number]
    for offset in range(log.start, log.end):
        key = log.keys[offset - log.first]
        h = None if key is None else hash_in(declared, key)
        yield Record(number, offset, key, h, disposition(case.task, "views", declared.null_keys, number, h))


def hash_in(declared: Stream, key: Key) -> int:
    """The hash of a key. Nobody knows where the keys of an opaque stream lie; what reads it takes all of them."""
    return hash_of(MURMUR2 if declared.hash == OPAQUE else declared.hash, "here")(key, declared.key_format)


def receipt(case: Case, number: int, seen: Sequence[Record]) -> PartitionReceipt:
    """What the receipt has to say of the planned records of a partition."""
    taken = [one for one in seen if one.disposition is Disposition.TAKEN]
    accounted = [one for one in seen if one.disposition in {Disposition.TAKEN, Disposition.DROPPED}]
    keyed = [one for one in taken if one.h is not None]
    broken = {
        Violation.FOREIGN: [one for one in seen if is_foreign(case, one)],
        Violation.STRAY: [one for one in keyed if is_stray(case, one)],
        Violation.NULL_KEY: [one for one in seen if one.disposition is Disposition.REFUSED],
    }
    return PartitionReceipt(
        input="views",
        partition=number,
        start=case.logs[number].start,
        end=case.logs[number].end,
        read=len(seen),
        taken=len(taken),
        dropped=len(accounted) - len(taken),
        nulls=len(broken[Violation.NULL_KEY]) + len(taken) - len(keyed),
        digest=f"{sum(offset_digest(one.offset) for one in accounted) % MODULUS:016x}",
        disorder=0,
        foreign=len(broken[Violation.FOREIGN]),
        stray=len(broken[Violation.STRAY]),
        keys=len({one.key for one in keyed if is_sampled(case, one)}),
        offenders=tuple(
            Offender(violation, number, one.offset, text(one.key))
            for violation, offenders in broken.items()
            for one in offenders[:OFFENDERS_KEPT]
        ),
        heavy=(),
    )


def is_foreign(case: Case, one: Record) -> bool:
    if case.declared.hash == OPAQUE or one.h is None:
        return False
    return one.h % case.lie_by != one.partition % case.lie_by


def is_stray(case: Case, one: Record) -> bool:
    if one.h is None or not case.task.owns or not owns_all(case, one.partition):
        return False
    return one.h % case.cosets not in case.task.owns


def owns_all(case: Case, partition: int) -> bool:
    """Whether the task owns all keys that it takes of those which belong in a partition; if not, none is a stray."""
    kept = case.task.filters.get("views", Residues(1, (0,)))
    hashes = range(0, lcm(case.lie_by, case.cosets, kept.modulus), kept.modulus)
    taken = (h + residue for h in hashes for residue in kept.residues)
    return all(h % case.cosets in case.task.owns for h in taken if h % case.lie_by == partition % case.lie_by)


def is_sampled(case: Case, one: Record) -> bool:
    return bool(case.task.owns) and one.h is not None and one.h // case.cosets % case.sample == 0


def text(key: Key | None) -> str | None:
    if key is None:
        return None
    return key.hex() if isinstance(key, bytes) else str(key)
