"""The audit: from the receipts of a batch to three small tables, which Great Expectations then judges.

`coverage` has a row for each stream partition, `keys` the sampled keys with the task that took them, and
`violations` the first records that broke a rule. All three are stored as Parquet beside the batch.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused
from partitioning.hashes import hash_of, read_key
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, PlannedPartition, PlannedStream, TaskGroup, TaskRef
from partitioning.model.receipt import MASK64, Offender, PartitionReceipt, Receipt, TaskReceipt
from partitioning.model.streams import REFUSE

# Great Expectations judges small tables: more keys than this are compared here and the worst are shown to it.
KEYS_JUDGED = 50_000
_CHUNK = 1 << 20

_TEXTS = {"stage", "stream", "key", "rule", "sentence", "null_keys", "digest_planned", "digest_found"}


def _schema(columns: str) -> pa.Schema:
    kinds = {"table": pa.bool_()} | dict.fromkeys(_TEXTS, pa.string())
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in columns.split()])


_TABLES = {
    "coverage": _schema(
        "stage stream partition table null_keys beginning committed start end planned read_min read_max taken dropped "
        "nulls refused_nulls digest_planned digest_found disorder foreign stray keys"
    ),
    "keys": _schema("stage stream key task partition offset"),
    "violations": _schema("rule stage task stream partition offset key sentence"),
}


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit tables of a batch's attempt; their columns are those of `_TABLES`.

    `coverage.keys` says how many keys were compared, `keys` holds all of them or, if they are many, those
    in more than one task first. Keys are text, as `partitioning.model.placement.read_key` reads them.
    """

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame


def audit(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read the receipts of every task group, build the audit tables and store them.

    Raises Refused, with all findings, if a receipt or a file of keys is missing, is of another plan or
    does not say exactly what its tasks were planned to read.
    """
    receipts = _receipts(ledger, plan, attempt)
    tasks = {receipt.task: receipt for each in receipts for receipt in each.tasks}
    tables = {
        "coverage": pa.Table.from_pylist(_coverage(plan, tasks.values()), _TABLES["coverage"]),
        "keys": _keys(ledger, tasks.values()),
        "violations": pa.Table.from_pylist(_violations(plan, tasks.values()), _TABLES["violations"]),
    }
    for name, table in tables.items():
        data = io.BytesIO()
        pq.write_table(table, data)
        ledger.store.put(_key(ledger, plan, attempt, name), data.getvalue())
    return Audit(**{name: table.to_pandas() for name, table in tables.items()})


def load(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read back what `audit` stored. Raises Refused if a table is missing or was stored by another version."""
    tables, findings = {}, []
    for name, schema in _TABLES.items():
        key = _key(ledger, plan, attempt, name)
        data = ledger.store.get(key)
        if data is None:
            findings.append(_audit_again(ledger, "the audit table is missing", key))
            continue
        table = pq.read_table(io.BytesIO(data))
        if not table.schema.equals(schema):
            findings.append(_audit_again(ledger, "the audit table has other columns than this version's", key))
        tables[name] = table.to_pandas()
    if findings:
        raise Refused(*findings)
    return Audit(**tables)


def range_digest(start: int, end: int) -> int:
    """The order-independent digest of the offsets [start, end): `offset_digest` of each, added up mod 2^64.

    >>> range_digest(0, 2) == (16294208416658607535 + 7960286522194355700) % 2**64
    True
    """
    total = 0
    for first in range(start, end, _CHUNK):
        z = (np.arange(first, min(end, first + _CHUNK), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        total += int(np.add.reduce(z ^ z >> np.uint64(31)))
    return total & MASK64


def _key(ledger: Ledger, plan: Plan, attempt: int, table: str) -> str:
    return f"{ledger.pipeline}/audits/{plan.batch}/attempt-{attempt}/{table}.parquet"


def _audit_again(ledger: Ledger, what: str, key: str) -> Finding:
    return Finding(what, ledger.uri(key), f"run `coset run {ledger.pipeline}`: it audits the batch again")


def _receipts(ledger: Ledger, plan: Plan, attempt: int) -> list[Receipt]:
    found, findings = [], []
    for group in plan.groups:
        receipt = ledger.receipt(plan.batch, attempt, group.group)
        where = ledger.uri(ledger.key("receipts", plan.batch, f"attempt-{attempt}", f"group-{group.group}"))
        if receipt is None:
            findings.append(_missing(ledger, plan, group, where))
        else:
            findings.extend(_misfits(plan, attempt, group, receipt, where))
            found.append(receipt)
    if findings:
        raise Refused(*findings)
    return found


def _missing(ledger: Ledger, plan: Plan, group: TaskGroup, where: str) -> Finding:
    uri = ledger.uri(ledger.key("plans", plan.batch))
    command = f"spark-submit spark_jobs/run_group.py --plan {uri} --digest {digest(plan)} --group {group.group}"
    return Finding(
        f"task group {group.group} of batch {plan.batch} has no receipt: it has not run to its end",
        where,
        f"run `coset run {plan.pipeline}`, or that group alone: `{command}`",
    )


def _misfits(plan: Plan, attempt: int, group: TaskGroup, receipt: Receipt, where: str) -> list[Finding]:
    then = f"run `coset abandon {plan.pipeline}`: the receipt is not one of this plan"
    if receipt.plan != digest(plan):
        return [Finding(f"the receipt is of plan {receipt.plan}, not of {digest(plan)}", where, then)]
    findings = []
    if (receipt.group, receipt.attempt) != (group.group, attempt):
        what = f"the receipt is of group {receipt.group}, attempt {receipt.attempt}"
        findings.append(Finding(what, where, then))
    counts = Counter(each.task for each in receipt.tasks)
    for task in sorted(set(group.tasks) | set(counts)):
        if counts[task] != (task in group.tasks):
            what = f"task {task} has {counts[task]} receipts, planned is {int(task in group.tasks)}"
            findings.append(Finding(what, where, then))
    for each in receipt.tasks:
        if each.task in group.tasks:
            findings.extend(Finding(what, where, then) for what in _misread(plan, each))
    return findings


def _misread(plan: Plan, receipt: TaskReceipt) -> list[str]:
    """Where what a task says it was to read is not what the plan says."""
    task = plan.stage(receipt.task.stage).tasks[receipt.task.task]
    planned = {(s, p): str(plan.stream(s).range(p)) for s, numbers in task.reads.items() for p in numbers}
    stated = Counter((each.stream, each.partition) for each in receipt.partitions)
    found = [f"task {receipt.task} accounts {n} times for {s}-{p}" for (s, p), n in stated.items() if n > 1]
    found += [f"task {receipt.task} does not account for {planned[each]}" for each in planned if each not in stated]
    for each in receipt.partitions:
        text = f"{each.stream}-{each.partition}@[{each.start},{each.end})"
        if planned.get((each.stream, each.partition)) != text:
            found.append(f"task {receipt.task} accounts for {text}, which is not planned for it")
    return found


def _coverage(plan: Plan, tasks: Iterable[TaskReceipt]) -> list[dict[str, object]]:
    seen: dict[tuple[str, int], list[PartitionReceipt]] = defaultdict(list)
    for task in tasks:
        for each in task.partitions:
            seen[each.stream, each.partition].append(each)
    return [
        _coverage_row(stage.name, plan.stream(name), partition, seen[name, partition.partition])
        for stage in plan.stages
        for name in stage.streams
        for partition in plan.stream(name).partitions
    ]


def _coverage_row(
    stage: str, stream: PlannedStream, planned: PlannedPartition, seen: Sequence[PartitionReceipt]
) -> dict[str, object]:
    def total(figure: str) -> int:
        return sum(getattr(each, figure) for each in seen)

    return {
        "stage": stage,
        "stream": stream.name,
        "partition": planned.partition,
        "table": stream.declared.table,
        "null_keys": stream.declared.null_keys,
        "beginning": planned.beginning,
        "committed": planned.committed,
        "start": planned.start,
        "end": planned.end,
        "planned": planned.end - planned.start,
        "read_min": min((each.read for each in seen), default=0),
        "read_max": max((each.read for each in seen), default=0),
        "taken": total("taken"),
        "dropped": total("dropped"),
        "nulls": total("nulls"),
        "refused_nulls": total("nulls") if stream.declared.null_keys == REFUSE else 0,
        "digest_planned": f"{range_digest(planned.start, planned.end):016x}",
        "digest_found": f"{sum(int(each.digest, 16) for each in seen) & MASK64:016x}",
        "disorder": total("disorder"),
        "foreign": total("foreign"),
        "stray": total("stray"),
        "keys": total("keys"),
    }


def _keys(ledger: Ledger, tasks: Iterable[TaskReceipt]) -> pa.Table:
    """The sampled keys of all tasks; if they are many, those that more than one task of a stage took first."""
    tables, findings = [], []
    for task in tasks:
        expected = {(each.stream, each.partition): each.keys for each in task.partitions if each.keys}
        if not expected:
            continue
        data = ledger.store.get(task.keys) if task.keys else None
        where = ledger.uri(task.keys or f"{ledger.pipeline}/audits")
        then = f"run `coset abandon {ledger.pipeline}`: the proof of this batch cannot be completed"
        if data is None:
            findings.append(Finding(f"the sampled keys of task {task.task} are missing", where, then))
            continue
        table = _task_keys(task.task, pq.read_table(io.BytesIO(data)))
        counted = table.group_by(["stream", "partition"]).aggregate([([], "count_all")]).to_pydict()
        if (
            dict(zip(zip(counted["stream"], counted["partition"], strict=True), counted["count_all"], strict=True))
            != expected
        ):
            what = f"task {task.task} sampled {sum(expected.values()):,} keys, its file holds {len(table):,} others"
            findings.append(Finding(what, where, then))
        tables.append(table)
    if findings:
        raise Refused(*findings)
    return _worst_first(pa.concat_tables(tables) if tables else _TABLES["keys"].empty_table())


def _task_keys(task: TaskRef, file: pa.Table) -> pa.Table:
    columns = {
        "stage": pa.array([task.stage] * len(file), pa.string()),
        "task": pa.array([task.task] * len(file), pa.int64()),
    }
    return pa.table(
        [columns[field.name] if field.name in columns else file[field.name] for field in _TABLES["keys"]],
        names=_TABLES["keys"].names,
    ).cast(_TABLES["keys"])


def _worst_first(sampled: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("sampled", sampled)
        ordered = connection.execute(
            """
            WITH split AS (SELECT stage, key FROM sampled GROUP BY ALL HAVING min(task) <> max(task))
            SELECT sampled.*
            FROM sampled LEFT JOIN split ON sampled.stage = split.stage AND sampled.key = split.key
            ORDER BY split.key IS NULL, sampled.stage, sampled.key, task, stream, partition
            LIMIT ?
            """,
            [KEYS_JUDGED],
        ).to_arrow_table()
    return ordered.cast(_TABLES["keys"])


def _violations(plan: Plan, tasks: Iterable[TaskReceipt]) -> list[dict[str, object]]:
    return [
        {
            "rule": offender.rule,
            "stage": task.task.stage,
            "task": task.task.task,
            "stream": each.stream,
            "partition": offender.partition,
            "offset": offender.offset,
            "key": offender.key,
            "sentence": _sentence(plan, task.task, plan.stream(each.stream), offender),
        }
        for task in tasks
        for each in task.partitions
        for offender in each.offenders
    ]


def _sentence(plan: Plan, task: TaskRef, stream: PlannedStream, offender: Offender) -> str:
    at = f"{stream.name}-{offender.partition} at offset {offender.offset:,}"
    if offender.rule == "null key":
        return f"{at} has no key, and {stream.name} refuses records without one"
    if offender.rule == "offset":
        return f"{at} does not follow the offset before it"
    count, cosets = len(stream.partitions), plan.stage(task.stage).cosets
    says = f"key {offender.key!r}, {at}"
    if offender.key is None or stream.declared.placement == OPAQUE:
        return f"{says}: {offender.rule}"
    hashed = hash_of(stream.declared.placement, stream.name)(
        read_key(offender.key, stream.declared.key_format), stream.declared.key_format
    )
    if offender.rule == "foreign":
        return f"{says}, belongs in partition {hashed % count} of {count}: its producer placed it otherwise"
    if offender.rule == "stray":
        return f"{says}, belongs to task {hashed % cosets} of {cosets}, but task {task.task} took it"
    return f"{says}: {offender.rule}"
