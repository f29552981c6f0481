"""The audit: turns the receipts of a batch into small tables, which Great Expectations judges. Its coverage,
partition by partition.

`coverage` has a row for each partition of each input of a stage, `keys` the sampled keys and the tasks that took them,
`violations` the first records that broke a rule, `produced` the output of tasks. All are stored beside the batch.

A second look checks that gaps are empty, without the readers that reported them: landed files are listed again, and
for a topic another consumer asks for the first record from the start of a gap on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from coset.batches.auditing.audit_tables import TABLES, Audit, parquet, put
from coset.batches.auditing.produced import closed, judged_keys, migrated, produced, violations
from coset.sources.pinned import files_in
from partitioning.commands import Replan
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import all_left, receipts
from partitioning.documents.store import at_once
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained, Gap
from partitioning.model.leaving import Left, leavings, partitions_of
from partitioning.model.offsets import Span, StreamPartition
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import (
    MODULUS,
    PartitionReceipt,
    Receipt,
    Role,
    TaskReceipt,
    least_and_most_read,
    offset_digest,
    range_digest,
    records_by_readers,
)
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
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
    refuse(findings)
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


# How many gaps of a topic's partition are looked into. Each costs a request.
LOOKED_INTO = 50


def second_look(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each stream partition with gaps: how many it has, how many were looked into, and what was found.

    Accepted losses are left out. The number is null if the tasks are of a version that does not report gaps. Raises
    Refused or Unreachable if the store or a broker fails.
    """
    seen: dict[tuple[str, int], list[PartitionReceipt]] = {}
    for task in tasks:
        for each in task.partitions:
            seen.setdefault((each.input, each.partition), []).append(each)
    for stream in plan.streams:
        match stream.declared.origin:
            case LandedSource():
                yield from _landed(plan, stream)
            case KafkaSource() as source:
                yield from _from_broker(stream, source, seen)
            case IcebergSource():
                # Its rows are counted, without gaps.
                pass


def _landed(plan: Plan, stream: PlannedStream) -> Iterator[dict[str, object]]:
    gaps: dict[int, list[Span]] = {}
    for partition, some in plan.gaps.items():
        wanted = [gap.offsets for gap in some if gap.file is None and gap.explained is not Explained.ACCEPTED]
        if partition.stream == stream.name and wanted:
            gaps[partition.partition] = [Span(offsets.start, offsets.end) for offsets in wanted]
    found: dict[int, list[tuple[int, str]]] = {}
    for number, start, uri in files_in(stream.declared, [stream.partitions[number] for number in gaps], gaps):
        found.setdefault(number, []).append((start, uri))
    for number, spans in gaps.items():
        there = sorted(found.get(number, ()))
        first = f"{there[0][1]}, from offset {there[0][0]:,} on" if there else None
        yield _row(stream, number, len(spans), len(spans), len(there), first)


def _from_broker(
    stream: PlannedStream, source: KafkaSource, seen: Mapping[tuple[str, int], Sequence[PartitionReceipt]]
) -> Iterator[dict[str, object]]:
    from coset.sources.kafka.pinned_topics import first_records  # noqa: PLC0415  few streams are read from brokers

    read = {planned.partition: seen.get((stream.name, planned.partition), ()) for planned in stream.partitions}
    named = {number: [each.gaps for each in receipts if each.gaps] for number, receipts in read.items()}
    gaps = {
        number: _spread(sorted({(gap.start, gap.end) for each in some for gap in each.some}))
        for number, some in named.items()
    }
    wanted = {number: some for number, some in gaps.items() if some}
    looked = first_records(source, stream.name, wanted) if wanted else {}
    for number, tasks_receipts in read.items():
        if any(map(_unsaid, tasks_receipts)):
            yield _row(stream, number, None, 0, 0, None)
        elif number in wanted:
            answers = looked.get(number, ())
            there = [first for gap, first in answers if first is not None and first < gap.end]
            count = max(len(wanted[number]), *(each.count for each in named[number]))
            first = f"offset {there[0]:,} in {source.uri(stream.name, number)}" if there else None
            yield _row(stream, number, count, len(answers), len(there), first)


def _unsaid(seen: PartitionReceipt) -> bool:
    """Whether a task read fewer records than offsets and does not report the gaps."""
    return seen.reached is not None and seen.gaps is None and seen.read < seen.end - seen.start


def _spread(gaps: Sequence[tuple[int, int]]) -> list[Span]:
    """At most `LOOKED_INTO` gaps, spread over the range, with the last."""
    every = -(-len(gaps) // LOOKED_INTO) or 1
    return [Span(*gap) for gap in list(gaps)[::-1][::every][::-1]]


def _row(
    stream: PlannedStream, number: int, gaps: int | None, looked: int, found: int, first: str | None
) -> dict[str, object]:
    figures = {"gaps": gaps, "looked": looked, "found": found, "first": first}
    return {"stream": stream.name, "partition": number} | figures


def audit(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Audit the stored receipts of an attempt. Raises Refused as `receipts` and `audit_of`."""
    return audit_of(ledger, plan, attempt, receipts(ledger, plan, attempt))


def audit_of(ledger: Ledger, plan: Plan, attempt: int, read: Sequence[Receipt]) -> Audit:
    """Build the audit tables from the receipts of all task groups, and store them.

    Raises Refused as `coverage` and `judged_keys`.
    """
    tasks = {receipt.task: receipt for group in read for receipt in group.tasks}.values()
    rows = {
        "coverage": coverage(ledger, plan, tasks),
        "violations": violations(plan, tasks),
        "moved": _moved(plan, tasks),
        "gaps": second_look(plan, tasks),
        "produced": produced(plan, tasks),
        "migrated": migrated(plan, tasks),
        "closed": closed(plan, tasks),
    }
    made = {name: pa.Table.from_pylist(list(each), TABLES[name]) for name, each in rows.items()}
    tables = {name: judged_keys(ledger, plan, read) if name == "keys" else made[name] for name in TABLES}
    put(ledger, plan, attempt, tables)
    return Audit(**{name: table.to_pandas(use_threads=False) for name, table in tables.items()})


def _moved(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    files = [artefact for task in tasks for artefact in task.artefacts if artefact.parts]
    spared = {exchange.name: exchange.spares for exchange in plan.exchanges}
    for stage in plan.stages:
        for leaving in leavings(plan, TaskRef(stage.name, 0)):
            left = [file for file in files if (file.role, file.name) == (leaving.role, leaving.name)]
            yield {
                "kind": leaving.role.value,
                "name": leaving.name,
                "step": leaving.step,
                "stage": stage.name,
                "partitions": leaving.placement.partitions,
                "records": sum(file.records for file in left),
                "bytes": sum(part.end - part.start for file in left for part in file.parts),
                "spared": spared.get(leaving.name),
            }
