"""A batch run record by record in plain Python: what the kernel's receipts must say, and what a fault does to them."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.cosets.rule import null_owner
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import MemoryStore
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import MASK64, HeavyKey, Offender, PartitionReceipt, Receipt, TaskReceipt, offset_digest
from partitioning.model.streams import DROP, OWN_TASK, REFUSE, Column, Discovered, DiscoveredPartition, InputFile
from partitioning.planning.planner import plan_batch

Log = Mapping[tuple[str, int], Sequence[str | None]]
TAKEN, DROPPED, REFUSED, LEFT = "taken", "dropped", "refused", "left to another task"


@dataclass(frozen=True)
class Seen:
    """One record as one task saw it, and what the task did with it."""

    task: TaskRef
    stream: str
    partition: int
    offset: int
    key: str | None
    fate: str


def pipeline(flights: int = 4, planes: int = 2, null_keys: str = REFUSE, expect: tuple[dict, ...] = ()) -> Pipeline:
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
    plan = plan_batch(made, found, {"delays": columns}, settings=Settings.parse(scheme=scheme))
    assert plan is not None
    return plan


def run(plan: Plan, records: Log) -> list[Seen]:
    """What every task sees and does, if all goes well."""
    return [
        Seen(
            TaskRef(stage.name, task.task),
            name,
            number,
            offset,
            key,
            _fate(plan, stage.name, task.task, name, number, key),
        )
        for stage in plan.stages
        for task in stage.tasks
        for name, numbers in task.reads.items()
        for number in numbers
        for offset, key in enumerate(records[name, number])
    ]


def store(plan: Plan, seen: Sequence[Seen], attempt: int = 0) -> Ledger:
    """A ledger in memory that holds the plan and the receipts of what was seen."""
    ledger = Ledger(MemoryStore(), plan.pipeline)
    ledger.put_plan(plan)
    for group in plan.groups:
        tasks = tuple(_task_receipt(ledger, plan, task, [s for s in seen if s.task == task]) for task in group.tasks)
        ledger.put_receipt(Receipt(digest(plan), group.group, attempt, tasks), plan.batch)
    return ledger


def _fate(plan: Plan, stage: str, task: int, stream: str, partition: int, key: str | None) -> str:
    declared, cosets = plan.stream(stream).declared, plan.stage(stage).cosets
    if key is not None:
        owner = placement_hash(key) % cosets if task < cosets else None
        return TAKEN if owner == task else LEFT
    if declared.null_keys == OWN_TASK:
        return TAKEN if plan.stage(stage).tasks[task].null_keys else LEFT
    if null_owner(partition, declared.partitions, cosets) != task:
        return LEFT
    return DROPPED if declared.null_keys == DROP else REFUSED


def _task_receipt(ledger: Ledger, plan: Plan, task: TaskRef, seen: Sequence[Seen]) -> TaskReceipt:
    held: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for name, numbers in plan.stage(task.stage).tasks[task.task].reads.items():
        for number in numbers:
            held[name, number] = []
    for each in seen:
        held[each.stream, each.partition].append(each)
    partitions = tuple(_receipt(plan, task, *where, records) for where, records in held.items())
    rows = [
        {"stream": name, "partition": number, "key": key, "offset": first, "task": task.task}
        for (name, number), records in held.items()
        for key, first in _keys(records).items()
    ]
    path = f"{plan.pipeline}/audits/{plan.batch}/keys/{task.stage}-{task.task}.parquet"
    if rows:
        data = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), data)
        ledger.store.put(path, data.getvalue())
    return TaskReceipt(task, partitions, (), path if rows else None, len(seen) / 1000)


def _keys(records: Sequence[Seen]) -> dict[str, int]:
    """The keys of the records taken, each with its first offset."""
    first: dict[str, int] = {}
    for each in records:
        if each.fate == TAKEN and each.key is not None:
            first.setdefault(each.key, each.offset)
    return first


def _receipt(plan: Plan, task: TaskRef, stream: str, partition: int, records: Sequence[Seen]) -> PartitionReceipt:
    span, stage = plan.stream(stream).range(partition), plan.stage(task.stage)
    count = len(plan.stream(stream).partitions)
    broken: dict[str, list[Seen]] = {"offset": [], "foreign": [], "stray": [], "null key": []}
    expected = span.start
    for each in records:
        if each.offset != expected:
            broken["offset"].append(each)
        expected = each.offset + 1
        if each.key is not None and placement_hash(each.key) % count != partition:
            broken["foreign"].append(each)
        if each.key is not None and each.fate == TAKEN and placement_hash(each.key) % stage.cosets != task.task:
            broken["stray"].append(each)
        if each.fate == REFUSED:
            broken["null key"].append(each)
    accounted = [each for each in records if each.fate in {TAKEN, DROPPED}]
    return PartitionReceipt(
        stream=stream,
        partition=partition,
        start=span.start,
        end=span.end,
        read=len(records),
        taken=sum(each.fate == TAKEN for each in records),
        dropped=sum(each.fate == DROPPED for each in records),
        nulls=sum(each.key is None and each.fate in {TAKEN, REFUSED} for each in records),
        digest=f"{sum(offset_digest(each.offset) for each in accounted) & MASK64:016x}",
        disorder=len(broken["offset"]),
        foreign=len(broken["foreign"]),
        stray=len(broken["stray"]),
        keys=len(_keys(records)),
        offenders=tuple(
            Offender(rule, partition, each.offset, each.key) for rule, found in broken.items() for each in found[:20]
        ),
        heavy=_heavy(records),
    )


def _heavy(records: Sequence[Seen]) -> tuple[HeavyKey, ...]:
    counts = Counter(each.key for each in records if each.fate == TAKEN and each.key is not None)
    return tuple(HeavyKey(key, count) for key, count in counts.most_common() if count >= max(100, counts.total() / 20))
