"""The audit: turns the receipts of a batch into small tables, which Great Expectations judges.

`coverage` has a row for each partition of each input of a stage, `keys` the sampled keys and the tasks that took them,
`violations` the first records that broke a rule, `produced` the output of tasks. All are stored beside the batch.

A second look checks that gaps are empty, without the readers that reported them: landed files are listed again, and
for a topic another consumer asks for the first record from the start of a gap on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from coset.batches.auditing.audit_tables import TABLES, Audit, put
from coset.batches.auditing.coverage_rows import coverage
from coset.batches.auditing.produced import closed, judged_keys, migrated, produced, violations
from coset.sources.pinned import files_in
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import receipts
from partitioning.model.leaving import leavings
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.read_ends import Explained
from partitioning.model.receipt import PartitionReceipt, Receipt, TaskReceipt
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedStream

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
            case _:
                assert_never(stream.declared.origin)


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
