"""A batch run record by record in plain Python: what the kernel's receipts must say, and what a fault does to them."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import gcd
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.receipt import (
    MODULUS,
    Artefact,
    HeavyKey,
    Offender,
    PartitionReceipt,
    Receipt,
    Role,
    TaskReceipt,
    Violation,
    offset_digest,
)
from partitioning.model.stage_inputs import StreamInput
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile, NullKeys
from partitioning.model.takes import Disposition
from partitioning.planning.planner import plan_batch
from partitioning.values import Value
from tests.coset_rule import disposition
from tests.memory_store import MemoryStore
from tests.there import there

Log = Mapping[tuple[str, int], Sequence[str | None]]


class Seen(Value, frozen=True):
    """One record as one task saw it, and what the task did with it."""

    task: TaskRef
    stream: str
    partition: int
    offset: int
    key: str | None
    disposition: Disposition


def pipeline(
    flights: int = 4, planes: int = 2, null_keys: NullKey = NullKeys.REFUSE, expect: tuple[dict[str, Any], ...] = ()
) -> Pipeline:
    """Flights and planes that meet by tail number, written to the table `delays`."""
    made = Pipeline("delays", source="s3://landing/topics")
    left = made.stream("flights", key="tailnum", partitions=flights, null_keys=null_keys)
    right = made.table("planes", key="tailnum", partitions=planes)
    left.join(right, "planes.seats", name="joined").write("delays", expect=expect)
    return made


def log(made: Pipeline, keys: Mapping[str, Sequence[str | None]]) -> Log:
    """The records of each stream partition, by offset, as producers would have put them there."""
    held: dict[tuple[str, int], list[str | None]] = {
        (stream.name, number): [] for stream in made.streams for number in range(stream.partitions)
    }
    for stream in made.streams:
        for place, key in enumerate(keys[stream.name]):
            at = place if key is None else placement_hash(key)
            held[stream.name, at % stream.partitions].append(key)
    return held


def planned(made: Pipeline, records: Log, scheme: str | None = None) -> Plan:
    """The first batch of a pipeline over these records."""
    columns = (Column("tailnum", "VARCHAR"), Column("seats", "BIGINT"))
    found = [
        Discovered(
            stream.name,
            columns,
            tuple(
                DiscoveredPartition(
                    number, (InputFile(f"{stream.name}-{number}.parquet", 100, "etag", 0, count),) if count else ()
                )
                for number in range(stream.partitions)
                for count in [len(records[stream.name, number])]
            ),
        )
        for stream in made.streams
    ]
    plan = there(plan_batch(made, found, {"delays": columns}, settings=Settings.parse(scheme=scheme)))
    return plan


def run(plan: Plan, records: Log) -> list[Seen]:
    """What every task sees and does, if all goes well."""
    return [
        Seen(TaskRef(stage.name, task.task), read.name, number, offset, key, becomes)
        for stage in plan.stages
        for task in stage.tasks
        for read in stage.streams
        for number in task.reads.get(read.name, ())
        for keyless in [_keyless(stage, read, number)]
        for offset, key in enumerate(records[read.name, number])
        for h in [None if key is None else placement_hash(key)]
        for becomes in [disposition(task.task, stage.cosets, h, read.null_keys, keyless)]
    ]


def _keyless(stage: Stage, read: StreamInput, partition: int) -> int:
    """The task whose the records of a partition without a key are: the first that owns keys of it, or one more."""
    own_task = read.null_keys is NullKeys.OWN_TASK
    return stage.cosets if own_task else partition % gcd(read.partitions, stage.cosets)


def store(plan: Plan, seen: Sequence[Seen], attempt: int = 0) -> Ledger:
    """A ledger in memory that holds the plan and the receipts of what was seen."""
    ledger = Ledger(MemoryStore(), plan.pipeline)
    ledger.put_plan(plan)
    for group in plan.groups:
        tasks = tuple(_task_receipt(ledger, plan, task, [s for s in seen if s.task == task]) for task in group.tasks)
        ledger.put_receipt(Receipt(digest(plan), group.group, attempt, tasks), plan.batch)
    return ledger


def _task_receipt(ledger: Ledger, plan: Plan, task: TaskRef, seen: Sequence[Seen]) -> TaskReceipt:
    held: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for name, numbers in plan.stage(task.stage).tasks[task.task].reads.items():
        for number in numbers:
            held[name, number] = []
    for each in seen:
        held[each.stream, each.partition].append(each)
    partitions = tuple(_receipt(plan, task, *where, records) for where, records in held.items())
    rows = [
        {"input": name, "key": key, "task": task.task, "partition": number, "offset": first}
        for (name, number), records in held.items()
        for key, first in _keys(records).items()
    ]
    return TaskReceipt(task, partitions, _key_artefacts(ledger, plan, task, rows), len(seen))


def _key_artefacts(ledger: Ledger, plan: Plan, task: TaskRef, rows: list[dict[str, Any]]) -> tuple[Artefact, ...]:
    """Store the sampled keys of a task; no file if there are none."""
    if not rows:
        return ()
    path = f"{plan.pipeline}/audits/{plan.batch}/keys/{task.stage}-{task.task}.parquet"
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    data = sink.getvalue()
    ledger.store.put(path, data)
    entry = there(ledger.store.head(path))
    digest_of_file = f"sha256:{sha256(data).hexdigest()}"
    return (Artefact(Role.KEYS, task.stage, path, entry.size, entry.etag, digest_of_file, len(rows)),)


def _keys(records: Sequence[Seen]) -> dict[str, int]:
    """The keys of the records taken, each with its first offset."""
    first: dict[str, int] = {}
    for each in records:
        if each.disposition is Disposition.TAKEN and each.key is not None:
            first.setdefault(each.key, each.offset)
    return first


def _receipt(plan: Plan, task: TaskRef, stream: str, partition: int, records: Sequence[Seen]) -> PartitionReceipt:
    span, stage = plan.stream(stream).range(partition), plan.stage(task.stage)
    count = len(plan.stream(stream).partitions)
    broken: dict[Violation, list[Seen]] = {violation: [] for violation in Violation}
    expected = span.start
    for each in records:
        if each.offset != expected:
            broken[Violation.OFFSET].append(each)
        expected = each.offset + 1
        if each.key is not None and placement_hash(each.key) % count != partition:
            broken[Violation.FOREIGN].append(each)
        if (
            each.key is not None
            and each.disposition is Disposition.TAKEN
            and placement_hash(each.key) % stage.cosets != task.task
        ):
            broken[Violation.STRAY].append(each)
        if each.disposition is Disposition.REFUSED:
            broken[Violation.NULL_KEY].append(each)
    accounted = [each for each in records if each.disposition in {Disposition.TAKEN, Disposition.DROPPED}]
    return PartitionReceipt(
        input=stream,
        partition=partition,
        start=span.start,
        end=span.end,
        read=len(records),
        taken=sum(each.disposition is Disposition.TAKEN for each in records),
        dropped=sum(each.disposition is Disposition.DROPPED for each in records),
        nulls=sum(
            each.key is None and each.disposition in {Disposition.TAKEN, Disposition.REFUSED} for each in records
        ),
        digest=f"{sum(offset_digest(each.offset) for each in accounted) % MODULUS:016x}",
        disorder=len(broken[Violation.OFFSET]),
        foreign=len(broken[Violation.FOREIGN]),
        stray=len(broken[Violation.STRAY]),
        keys=len(_keys(records)),
        offenders=tuple(
            Offender(violation, partition, each.offset, each.key)
            for violation, offenders in broken.items()
            for each in offenders[:20]
        ),
        heavy=_heavy(records),
    )


def _heavy(records: Sequence[Seen]) -> tuple[HeavyKey, ...]:
    counts = Counter(each.key for each in records if each.disposition is Disposition.TAKEN and each.key is not None)
    return tuple(HeavyKey(key, count) for key, count in counts.most_common() if count >= max(100, counts.total() / 20))
