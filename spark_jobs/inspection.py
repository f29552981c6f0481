"""Inspection: one pass over each Arrow batch takes the receipt's figures and decides which records are the task's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numba import njit

from partitioning.cosets.rule import needs_filter, null_owner
from partitioning.errors import Finding, Refused
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.plan import PlannedStream, Stage
from partitioning.model.receipt import MASK64, Offender, PartitionReceipt
from partitioning.model.schemes import MAX
from partitioning.model.streams import DROP, REFUSE, InputFile
from partitioning.model.tasks import Task
from spark_jobs.hashing import key_texts, placement_hashes
from spark_jobs.heavy_keys import HeavyKeys

OFFENDERS_KEPT = 20
RULES = ("offset", "foreign", "stray", "null key")
_KEYS_HELD = 1_000_000

# Positions in the array of running counts.
_READ, _TAKEN, _DROPPED, _NULLS, _DISORDER, _FOREIGN, _STRAY, _EXPECTED = range(8)
_COUNT_OF_RULE = (_DISORDER, _FOREIGN, _STRAY, _NULLS)

# What a task does with records without a key.
_IGNORE_NULLS, _TAKE_NULLS, _DROP_NULLS, _REFUSE_NULLS = range(4)


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one stream partition in one task; see `rules_of`. A `sample` of 0 samples no keys."""

    start: int
    end: int
    partitions: int
    partition: int
    tasks: int
    task: int
    nulls: int
    keyed: bool
    check_placement: bool
    check_task: bool
    filtered: bool
    sample: int


def rules_of(stage: Stage, task: Task, stream: PlannedStream, partition: int, key_sample: int) -> Rules:
    """The rules by which `task` inspects and takes records of a stream partition."""
    declared = stream.declared
    whole = stage.scheme == str(MAX)
    placed = declared.placement != OPAQUE
    filtered = not whole and needs_filter(stage.cosets, declared.partitions)
    owns_nulls = whole or null_owner(partition, declared.partitions, stage.cosets) == task.task
    if task.null_keys:
        nulls = _TAKE_NULLS
    else:
        nulls = {DROP: _DROP_NULLS, REFUSE: _REFUSE_NULLS}.get(declared.null_keys, _IGNORE_NULLS)
        nulls = nulls if owns_nulls else _IGNORE_NULLS
    planned = stream.partitions[partition]
    return Rules(
        start=planned.start,
        end=planned.end,
        partitions=declared.partitions,
        partition=partition,
        tasks=stage.cosets,
        task=task.task,
        nulls=nulls,
        keyed=not task.null_keys,
        check_placement=placed,
        check_task=placed and not whole,
        filtered=filtered,
        sample=0 if whole or task.null_keys else key_sample,
    )


@dataclass(slots=True)
class Inspection:
    """The running figures of one stream partition in one task.

    `take` is called with its batches in file order and gives back the records that are the task's;
    `receipt` then says what was seen, `keys` which keys were sampled.
    """

    stream: PlannedStream
    rules: Rules
    _counts: np.ndarray = field(init=False)
    _digest: int = 0
    _offenders: dict[str, list[Offender]] = field(default_factory=lambda: {rule: [] for rule in RULES})
    _sampled: list[pa.Table] = field(default_factory=list)
    _held: int = 0
    _heavy: HeavyKeys = field(init=False)

    def __post_init__(self) -> None:
        self._heavy = HeavyKeys(self.stream.declared.key_format)
        self._counts = np.zeros(8, np.int64)
        self._counts[_EXPECTED] = self.rules.start

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be in each batch, whatever the SQL needs."""
        return (self.stream.declared.key, self.stream.declared.offset)

    def take(self, batch: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
        """Look at every record of a batch of `file`; give back those that are this task's.

        Raises Refused if an offset is null or keys are not of the declared format.
        """
        rules, declared = self.rules, self.stream.declared
        keys, offsets = batch.column(declared.key), batch.column(declared.offset)
        if offsets.null_count:
            raise Refused(
                Finding(
                    f"column {declared.offset!r} has {offsets.null_count} records without an offset",
                    file.path,
                    "land the file again with every record's offset",
                )
            )
        before = self._counts.copy()
        taken = np.empty(len(batch), np.bool_)
        sampled = np.empty(len(batch) if rules.sample else 0, np.bool_)
        firsts = np.empty((len(RULES), OFFENDERS_KEPT), np.int64)
        found = np.zeros(len(RULES), np.int64)
        # The keys of an opaque stream are hashed for the sample and the heavy ones alone.
        placement = declared.placement if rules.check_placement else MURMUR2
        hashes = placement_hashes(keys, declared.key_format, placement)
        digest = _inspect(
            hashes,
            _valid(keys),
            offsets.cast(pa.int64()).to_numpy(),
            (rules.start, rules.end, file.start, file.end),
            (rules.partitions, rules.partition, rules.tasks, rules.task, max(rules.sample, 1)),
            rules.nulls,
            (rules.keyed, rules.check_placement, rules.check_task, rules.filtered),
            self._counts,
            taken,
            sampled,
            firsts,
            found,
        )
        self._digest = (self._digest + int(digest)) & MASK64
        self._note_offenders(keys, offsets, firsts, found)
        if rules.keyed:
            self._heavy.note(keys, hashes, taken)
        if rules.sample:
            self._note_keys(keys, offsets, sampled)
        count = int(self._counts[_TAKEN] - before[_TAKEN])
        if count == len(batch):
            return batch
        return batch.filter(_mask(taken)) if count else batch.slice(0, 0)

    def receipt(self) -> PartitionReceipt:
        """What was seen up to now."""
        counts = [int(count) for count in self._counts]
        return PartitionReceipt(
            stream=self.stream.name,
            partition=self.rules.partition,
            start=self.rules.start,
            end=self.rules.end,
            read=counts[_READ],
            taken=counts[_TAKEN],
            dropped=counts[_DROPPED],
            nulls=counts[_NULLS],
            digest=f"{self._digest:016x}",
            disorder=counts[_DISORDER],
            foreign=counts[_FOREIGN],
            stray=counts[_STRAY],
            keys=len(self.keys()),
            offenders=tuple(offender for rule in RULES for offender in self._offenders[rule]),
            heavy=self._heavy.found(),
        )

    def keys(self) -> pa.Table:
        """The sampled keys, each once: columns `key` (text) and `offset` (of its first record)."""
        self._compact()
        return self._sampled[0] if self._sampled else _SAMPLED.empty_table()

    def _note_offenders(self, keys: pa.Array, offsets: pa.Array, firsts: np.ndarray, found: np.ndarray) -> None:
        for number, rule in enumerate(RULES):
            kept = self._offenders[rule]
            for row in firsts[number, : min(found[number], OFFENDERS_KEPT - len(kept))].tolist():
                (key,) = key_texts(keys.slice(row, 1), self.stream.declared.key_format).to_pylist()
                kept.append(Offender(rule, self.rules.partition, offsets[row].as_py(), key))

    def _note_keys(self, keys: pa.Array, offsets: pa.Array, sampled: np.ndarray) -> None:
        mask = _mask(sampled)
        texts = key_texts(keys.filter(mask), self.stream.declared.key_format)
        some = pa.Table.from_arrays([texts, offsets.filter(mask).cast(pa.int64())], schema=_SAMPLED)
        if len(some):
            self._sampled.append(some)
            self._held += len(some)
        if self._held > _KEYS_HELD:
            self._compact()

    def _compact(self) -> None:
        if len(self._sampled) > 1 or self._held:
            table = pa.concat_tables(self._sampled).group_by("key", use_threads=False).aggregate([("offset", "min")])
            self._sampled, self._held = [table.rename_columns(["key", "offset"])], 0


_SAMPLED = pa.schema([("key", pa.string()), ("offset", pa.int64())])


def _mask(flags: np.ndarray) -> pa.Array:
    # pa.array() would import pandas, which costs more than many a task.
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(flags), [None, bits])


def _valid(keys: pa.Array) -> np.ndarray:
    """One flag per key, or an empty array if all are there."""
    if keys.null_count == 0:
        return np.empty(0, np.bool_)
    return keys.is_valid().to_numpy(zero_copy_only=False)


@njit(cache=True, nogil=True, inline="always")
def _splitmix64(offset):  # type: ignore[no-untyped-def]
    """The compiled twin of `partitioning.model.receipt.offset_digest`."""
    z = (np.uint64(offset) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _inspect(  # type: ignore[no-untyped-def]  # noqa: C901
    hashes, valid, offsets, bounds, numbers, nulls, flags, counts, taken, sampled, firsts, found
):
    start, end, file_start, file_end = bounds
    partitions, partition, tasks = np.uint32(numbers[0]), np.uint32(numbers[1]), np.uint32(numbers[2])
    task, sample = np.uint32(numbers[3]), np.uint32(numbers[4])
    keyed, check_placement, check_task, filtered = flags
    expected = counts[_EXPECTED]
    digest = np.uint64(0)
    for i in range(len(hashes)):
        taken[i] = False
        if len(sampled):
            sampled[i] = False
        offset = offsets[i]
        if offset < file_start or offset >= file_end:
            # Not a record of this file, whatever its name says.
            _count(0, i, counts, firsts, found)
            continue
        if offset < start or offset >= end:
            continue
        counts[_READ] += 1
        if offset != expected:
            _count(0, i, counts, firsts, found)
        expected = offset + 1
        if len(valid) and not valid[i]:
            if nulls == _TAKE_NULLS:
                taken[i] = True
                counts[_TAKEN] += 1
                counts[_NULLS] += 1
                digest += _splitmix64(offset)
            elif nulls == _DROP_NULLS:
                counts[_DROPPED] += 1
                digest += _splitmix64(offset)
            elif nulls == _REFUSE_NULLS:
                _count(3, i, counts, firsts, found)
            continue
        h = hashes[i]
        if check_placement and h % partitions != partition:
            _count(1, i, counts, firsts, found)
        if not keyed:
            continue
        if check_task and h % tasks != task:
            if filtered:
                continue
            _count(2, i, counts, firsts, found)
        taken[i] = True
        counts[_TAKEN] += 1
        digest += _splitmix64(offset)
        if len(sampled):
            sampled[i] = h // tasks % sample == 0
    counts[_EXPECTED] = expected
    return digest


@njit(cache=True, nogil=True, inline="always")
def _count(rule, row, counts, firsts, found):  # type: ignore[no-untyped-def]
    counts[_COUNT_OF_RULE[rule]] += 1
    if found[rule] < firsts.shape[1]:
        firsts[rule, found[rule]] = row
        found[rule] += 1
