"""Coverage: what the tasks of a stage together have to account for in each partition, beside what they did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import pandas as pd

from coset.batches.auditing.audit_tables import parquet
from partitioning.commands import Replan
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import all_left
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.leaving import Left, partitions_of
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Explained, Gap
from partitioning.model.receipt import (
    MODULUS,
    PartitionReceipt,
    Role,
    TaskReceipt,
    least_and_most_read,
    offset_digest,
    range_digest,
    records_by_readers,
)
from partitioning.model.stage_inputs import (
    ExchangeInput,
    Input,
    PlannedPartition,
    PlannedStream,
    ResultInput,
    StateInput,
    StreamInput,
)
from partitioning.model.statistics import Place, counted_once
from partitioning.model.streams import NullKeys


def coverage(ledger: Ledger, plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each partition of each input of a stage.

    Raises Refused with all findings if a file of records that were set aside is missing or damaged.
    """
    tasks = tuple(tasks)
    left, once, kept = all_left(ledger, plan, tasks), counted_once(plan, tasks), _kept_aside(ledger, tasks)
    accounts: dict[Place, list[PartitionReceipt]] = defaultdict(list)
    for task in once.tasks:
        for seen in task.partitions:
            accounts[task.task.stage, seen.input, seen.partition].append(seen)
    moved = {read.name: stage.name for stage in plan.stages for read in stage.streams if _stays(plan, read) is False}
    for stage in plan.stages:
        for read in stage.inputs:
            if (stays := _stays(plan, read)) is False:
                continue
            for expected in _expected(plan, left, read):
                place = stage.name, read.name, expected.partition
                accounted = accounts[place]
                # Those that take what stays and those that move the rest account for it together.
                if stays:
                    accounted = [*accounted, *accounts[moved[read.name], read.name, expected.partition]]
                row = _coverage_row(stage.name, expected, accounted, *kept.get(place, (0, 0)))
                yield row | {"copies_differ": once.differing.get(place, 0)}


def _stays(plan: Plan, read: Input) -> bool | None:
    return read.stays(plan.stream(read.name).declared) if isinstance(read, StreamInput) else None


# By stage, input and partition: how many records that were set aside the files have, and the digest of their offsets.
_Kept = Mapping[tuple[str, str, int], tuple[int, int]]


def _kept_aside(ledger: Ledger, tasks: Iterable[TaskReceipt]) -> _Kept:
    """Counted in the files. Raises Refused with all findings if one is missing or damaged."""
    kept: dict[tuple[str, str, int], tuple[int, int]] = {}
    findings = []
    then = (Replan(ledger.pipeline), ": the proof of this batch cannot be completed")
    files = [(task.task, file.path) for task in tasks for file in task.left(Role.SET_ASIDE)]
    stored = at_once(ledger.store.get, [path for _, path in files])
    for (task, path), data in zip(files, stored, strict=True):
        where = ledger.uri(path)
        if data is None:
            what = f"the records that task {task} set aside are missing"
            findings.append(Finding.of(Kind.TASK_FILES, what, where, then, task=task))
            continue
        for row in parquet(data, where, then).select(["stream", "partition", "offset"]).to_pylist():
            place = task.stage, row["stream"], row["partition"]
            count, digest = kept.get(place, (0, 0))
            kept[place] = count + 1, (digest + offset_digest(row["offset"])) % MODULUS
    if findings:
        raise Refused(*findings)
    return kept


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the tasks of a stage together have to account for in a partition: the offsets [start, end).

    `records` is their number and `digest` the digest of the offsets. Each is None if only the readers can know it.
    """

    input: str
    partition: int
    table: bool
    null_keys: NullKeys
    bad_records: str
    start: int
    end: int
    records: int | None
    digest: str | None


def _expected(plan: Plan, left: Left, read: Input) -> Iterator[_Expected]:
    """The expected offsets of an input: those planned of a stream, those written of an exchange, result or state."""
    match read:
        case StreamInput():
            stream = plan.stream(read.name)
            for planned in (stream.partitions[number] for number in read.numbers):
                bad = str(stream.declared.bad_records) if stream.declared.sets_aside else ""
                place = read.name, planned.partition, stream.declared.table, read.null_keys, bad
                digest = None if stream.declared.may_lack_offsets else _digest(plan, stream, planned)
                records = planned.records if stream.declared.counted_by_plan else None
                yield _Expected(*place, planned.start, planned.end, records, digest)
        case ExchangeInput() | ResultInput() | StateInput():
            for written in partitions_of(left, read.name, read.numbers):
                place = read.name, written.partition, False, NullKeys.OWN_TASK, ""
                digest = _text(range_digest(written.start, written.end))
                yield _Expected(*place, written.start, written.end, written.end - written.start, digest)
        case _:
            assert_never(read)


def _coverage_row(
    stage: str, expected: _Expected, accounts: Sequence[PartitionReceipt], kept: int, digest_kept: int
) -> dict[str, object]:
    def total(figure: str) -> int:
        return sum(getattr(seen, figure) for seen in accounts)

    least, most = least_and_most_read(accounts)
    planned = expected.records
    if planned is None:
        planned = records_by_readers(expected.start, expected.end, accounts)
    return {
        "stage": stage,
        "input": expected.input,
        "partition": expected.partition,
        "table": expected.table,
        "null_keys": expected.null_keys.value,
        "start": expected.start,
        "end": expected.end,
        "planned": planned,
        "read_min": least,
        "read_max": most,
        "taken": total("taken"),
        "dropped": total("dropped"),
        "nulls": total("nulls"),
        "refused_nulls": total("nulls") if expected.null_keys is NullKeys.REFUSE else 0,
        "digest_planned": _held(accounts) if expected.digest is None else expected.digest,
        "digest_found": _text(sum(int(seen.digest, 16) for seen in accounts) % MODULUS),
        "disorder": total("disorder"),
        "foreign": _foreign(accounts),
        "stray": total("stray"),
        "keys": total("keys"),
        "bad_records": expected.bad_records,
        "set_aside": total("set_aside"),
        "kept_aside": kept,
        "digest_aside": _text(sum(int(seen.digest_aside or "0", 16) for seen in accounts) % MODULUS),
        "digest_kept": _text(digest_kept),
    }


def _foreign(accounts: Sequence[PartitionReceipt]) -> int:
    """How many records lie elsewhere than their keys hash: each task that reads a range sees all of them."""
    most = dict[tuple[int, int], int]()
    for seen in accounts:
        most[seen.start, seen.end] = max(most.get((seen.start, seen.end), 0), seen.foreign)
    return sum(most.values())


def _digest(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> str:
    """The digest of the planned offsets of a partition of a dense stream. Offsets between files are left out."""
    gaps = plan.gaps.get(StreamPartition(stream.name, planned.partition), ())
    lost = sum(range_digest(gap.offsets.start, gap.offsets.end) for gap in gaps)
    return _text((range_digest(planned.start, planned.end) - lost) % MODULUS)


def _text(digest: int) -> str:
    return f"{digest:016x}"


def _held(accounts: Sequence[PartitionReceipt]) -> str:
    """The digest of the offsets that tasks read from a partition of a sparse stream. Empty if the tasks disagree.

    Tasks with the same range must have the same digest. Digests of different ranges are added.
    """
    by_range: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seen in accounts:
        by_range[seen.start, seen.end].add(seen.held)
    if any(len(digests) > 1 or "" in digests for digests in by_range.values()):
        return ""
    return _text(sum(int(held, 16) for digests in by_range.values() for held in digests) % MODULUS)


def broker_gaps(plan: Plan, coverage: pd.DataFrame) -> Iterator[Gap]:
    """How many offsets without a record each planned range of a topic has, by the audit's coverage table."""
    rows = coverage.drop_duplicates(["input", "partition"])
    records = {(row.input, int(row.partition)): int(row.planned) for row in rows.itertuples()}
    for stream in plan.streams:
        if stream.declared.counted_by_plan:
            continue
        for planned in stream.partitions:
            missing = planned.records - records.get((stream.name, planned.partition), planned.records)
            if missing > 0:
                yield Gap(stream.range(planned.partition), missing, Explained.BROKER, planned.files[-1].path)
