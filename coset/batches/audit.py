"""The audit: from the receipts of a batch to small tables, which Great Expectations then judges.

`coverage` has a row for each partition of each input of a stage, `keys` the sampled keys with the task that took
them, `violations` the first records that broke a rule, `produced` what tasks left. All are stored as Parquet beside the
batch.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches.produced import produced
from coset.batches.second_look import second_look
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Replan, Run, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import all_left, receipts
from partitioning.errors import Finding, Refused, about
from partitioning.hashes import hash_of, read_key
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.gaps import planned_gaps
from partitioning.model.graph import quote
from partitioning.model.leaving import Left, leavings, partitions_of
from partitioning.model.placement import KeyFormat
from partitioning.model.plan import (
    ExchangeInput,
    Input,
    Plan,
    PlannedPartition,
    PlannedStream,
    ResultInput,
    StateInput,
    StreamInput,
    TaskRef,
)
from partitioning.model.receipt import (
    MODULUS,
    Offender,
    PartitionReceipt,
    Receipt,
    TaskReceipt,
    Violation,
    least_and_most_read,
    range_digest,
    records_by_readers,
)
from partitioning.model.streams import NullKeys

# Great Expectations judges small tables: more keys than this are compared here and the worst are shown to it.
KEYS_JUDGED = 50_000

_TEXTS = {
    *("kind", "name", "step", "stage", "input", "key", "violation", "sentence", "null_keys"),
    *("digest_planned", "digest_found", "stream", "first"),
}


def _schema(columns: str) -> pa.Schema:
    kinds = {"table": pa.bool_(), "counted": pa.bool_()} | dict.fromkeys(_TEXTS, pa.string())
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in columns.split()])


_TABLES = {
    "coverage": _schema(
        "stage input partition table null_keys start end planned read_min read_max taken dropped "
        "nulls refused_nulls digest_planned digest_found disorder foreign stray keys"
    ),
    "keys": _schema("stage input key task partition offset"),
    "violations": _schema("violation stage task input partition offset key sentence"),
    "moved": _schema("kind name step stage partitions records bytes spared"),
    "gaps": _schema("stream partition gaps looked found first"),
    "produced": _schema("stage task kind name partition counted taken made left"),
}


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit tables of a batch's attempt; their columns are those of `_TABLES`.

    `coverage.keys` says how many keys were compared, `keys` holds all of them or, if they are many, those
    in more than one task first. Keys are text, as `partitioning.hashes.read_key` reads them. `moved` has what tasks
    left for later ones; `spared` are the records that a shuffle of all would have moved too, as it was planned.
    `produced` has what each task made and left, `gaps` what lies where offsets are missing, as `batches.produced` and
    `batches.second_look` say it.
    """

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame
    moved: pd.DataFrame
    produced: pd.DataFrame
    gaps: pd.DataFrame


def audit(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read the receipts of every task group and make the audit tables. Raises Refused as `receipts` and `audit_of`."""
    return audit_of(ledger, plan, attempt, receipts(ledger, plan, attempt))


def audit_of(ledger: Ledger, plan: Plan, attempt: int, read: Iterable[Receipt]) -> Audit:
    """Build the audit tables of the receipts of every task group, and store them.

    Raises Refused, with all findings, if a file of keys is missing or does not hold those that its task sampled.
    """
    tasks = {receipt.task: receipt for group in read for receipt in group.tasks}
    left = all_left(ledger, plan, tasks.values())
    tables = {
        "coverage": pa.Table.from_pylist(_coverage(plan, left, tasks.values()), _TABLES["coverage"]),
        "keys": _keys(ledger, tasks.values()),
        "violations": pa.Table.from_pylist(_violations(plan, tasks.values()), _TABLES["violations"]),
        "moved": pa.Table.from_pylist(list(_moved(plan, tasks.values())), _TABLES["moved"]),
        "gaps": pa.Table.from_pylist(list(second_look(plan, tasks.values())), _TABLES["gaps"]),
        "produced": pa.Table.from_pylist(list(produced(plan, tasks.values())), _TABLES["produced"]),
    }
    for name, table in tables.items():
        data = io.BytesIO()
        pq.write_table(table, data, write_page_checksum=True)
        ledger.store.put(_key(ledger, plan, attempt, name), data.getvalue())
    return Audit(**{name: table.to_pandas() for name, table in tables.items()})


def load(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read back what `audit` stored. Raises Refused as `load_some`."""
    return Audit(**load_some(ledger, plan, attempt, *_TABLES))


def load_some(ledger: Ledger, plan: Plan, attempt: int, *names: str) -> dict[str, pd.DataFrame]:
    """Some of the audit tables: batches of older versions lack others.

    Raises Refused, with all findings, if one is missing or was stored by a version whose columns were others.
    """
    tables, findings = dict[str, pd.DataFrame](), []
    for name in names:
        schema, key = _TABLES[name], _key(ledger, plan, attempt, name)
        data = ledger.store.get(key)
        if data is None:
            findings.append(_audit_again(ledger, "the audit table is missing", key))
            continue
        table = _table(data, ledger.uri(key), AGAIN)
        if not table.schema.equals(schema):
            findings.append(_audit_again(ledger, "the audit table has other columns than this version's", key))
        tables[name] = table.to_pandas()
    if findings:
        raise Refused(*findings)
    return tables


def _key(ledger: Ledger, plan: Plan, attempt: int, table: str) -> str:
    return f"{ledger.pipeline}/audits/{plan.batch}/attempt-{attempt}/{table}.parquet"


def _audit_again(ledger: Ledger, what: str, key: str) -> Finding:
    return Finding(
        Kind.BATCH_UNRUN,
        what,
        ledger.uri(key),
        (Run(ledger.pipeline), ": it audits the batch again"),
        about(document=key),
    )


def _coverage(plan: Plan, left: Left, tasks: Iterable[TaskReceipt]) -> list[dict[str, object]]:
    accounts: dict[tuple[str, str, int], list[PartitionReceipt]] = defaultdict(list)
    for task in tasks:
        for seen in task.partitions:
            accounts[task.task.stage, seen.input, seen.partition].append(seen)
    return [
        _coverage_row(stage.name, expected, accounts[stage.name, read.name, expected.partition])
        for stage in plan.stages
        for read in stage.inputs
        for expected in _expected(plan, left, read)
    ]


@dataclass(frozen=True, slots=True)
class _Expected:
    """The offsets of a partition that the tasks of a stage have to account for, together: [start, end), which have so
    many `records`. `digest` is theirs. Each is None if only those who read them can know it."""

    input: str
    partition: int
    table: bool
    null_keys: NullKeys
    start: int
    end: int
    records: int | None
    digest: str | None


def _expected(plan: Plan, left: Left, read: Input) -> Iterator[_Expected]:
    """What was planned of a stream; what earlier tasks said they wrote of an exchange, a result or state."""
    match read:
        case StreamInput():
            stream = plan.stream(read.name)
            for planned in (stream.partitions[number] for number in read.numbers):
                place = read.name, planned.partition, stream.declared.table, read.null_keys
                digest = None if stream.declared.may_lack_offsets else _digest(plan, stream, planned)
                records = planned.records if stream.declared.counted_by_plan else None
                yield _Expected(*place, planned.start, planned.end, records, digest)
        case ExchangeInput() | ResultInput() | StateInput():
            for written in partitions_of(left, read.name, read.numbers):
                place = read.name, written.partition, False, NullKeys.OWN_TASK
                digest = _text(range_digest(written.start, written.end))
                yield _Expected(*place, written.start, written.end, written.end - written.start, digest)
        case _:
            assert_never(read)


def _coverage_row(stage: str, expected: _Expected, accounts: Sequence[PartitionReceipt]) -> dict[str, object]:
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
        "foreign": total("foreign"),
        "stray": total("stray"),
        "keys": total("keys"),
    }


def _digest(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> str:
    """The digest of what is planned of a partition of a dense stream: its range but for what lies between files."""
    missing = (gap.offsets for gap in planned_gaps(plan, stream.declared, planned)) if planned.missing else ()
    lost = sum(range_digest(hole.start, hole.end) for hole in missing)
    return _text((range_digest(planned.start, planned.end) - lost) % MODULUS)


def _text(digest: int) -> str:
    return f"{digest:016x}"


def _held(accounts: Sequence[PartitionReceipt]) -> str:
    """The digest of the offsets that tasks read of a partition of a sparse stream; empty if they do not agree.

    Tasks that share a range read the same of it; those of several ranges are added up.
    """
    by_range: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seen in accounts:
        by_range[seen.start, seen.end].add(seen.held)
    if any(len(digests) > 1 or "" in digests for digests in by_range.values()):
        return ""
    return _text(sum(int(held, 16) for digests in by_range.values() for held in digests) % MODULUS)


def _keys(ledger: Ledger, tasks: Iterable[TaskReceipt]) -> pa.Table:
    """The sampled keys of all tasks; if they are many, those that more than one task of a stage took first."""
    tables, findings = [], []
    for task in tasks:
        expected = {(seen.input, seen.partition): seen.keys for seen in task.partitions if seen.keys}
        if not expected:
            continue
        left = task.left(Role.KEYS)
        data = ledger.store.get(left[0].path) if left else None
        where = ledger.uri(left[0].path if left else f"{ledger.pipeline}/audits")
        then = (Replan(ledger.pipeline), ": the proof of this batch cannot be completed")
        if data is None:
            findings.append(
                Finding(
                    Kind.TASK_FILES,
                    f"the sampled keys of task {task.task} are missing",
                    where,
                    then,
                    about(task=task.task),
                )
            )
            continue
        table = _task_keys(task.task, _table(data, where, then))
        counted = table.group_by(["input", "partition"]).aggregate([([], "count_all")]).to_pydict()
        places = zip(counted["input"], counted["partition"], strict=True)
        if dict(zip(places, counted["count_all"], strict=True)) != expected:
            what = f"task {task.task} sampled {sum(expected.values()):,} keys, its file holds {len(table):,} others"
            findings.append(Finding(Kind.TASK_FILES, what, where, then, about(task=task.task, keys=len(table))))
        tables.append(table)
    if findings:
        raise Refused(*findings)
    return _worst_first(pa.concat_tables(tables) if tables else _TABLES["keys"].empty_table())


def _table(data: bytes, where: str, then: Then) -> pa.Table:
    """What a Parquet file holds. Raises Refused if it is not what was written."""
    with reaching("the file cannot be read", where, then):
        return pq.read_table(io.BytesIO(data), page_checksum_verification=True)


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
            ORDER BY split.key IS NULL, sampled.stage, sampled.key, task, input, partition
            LIMIT ?
            """,
            [KEYS_JUDGED],
        ).to_arrow_table()
    return ordered.cast(_TABLES["keys"])


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


def _violations(plan: Plan, tasks: Iterable[TaskReceipt]) -> list[dict[str, object]]:
    return [
        {
            "violation": offender.violation.value,
            "stage": task.task.stage,
            "task": task.task.task,
            "input": seen.input,
            "partition": offender.partition,
            "offset": offender.offset,
            "key": offender.key,
            "sentence": _sentence(plan, task.task, seen.input, offender),
        }
        for task in tasks
        for seen in task.partitions
        for offender in seen.offenders
    ]


def _sentence(plan: Plan, task: TaskRef, name: str, offender: Offender) -> str:
    stage = plan.stage(task.stage)
    (read,) = (read for read in stage.inputs if read.name == name)
    at = f"{name}-{offender.partition} at offset {offender.offset:,}"
    says = f"key {offender.key!r}, {at}"
    match offender.violation:
        case Violation.NULL_KEY:
            return f"{at} has no key, and {name} refuses records without one"
        case Violation.OFFSET:
            return f"{at} does not follow the offset before it"
        case Violation.FOREIGN:
            count = read.placement.partitions
            home = _hash(read, offender) % count
            belongs = f"belongs in partition {home} of {count}"
            if count != (read.partitions if isinstance(read, StreamInput) else len(read.numbers)):
                belongs = f"belongs in a partition ≡ {home} modulo {count}"
            whose = "its producer" if isinstance(read, StreamInput) else "the task that left it"
            return f"{says}, {belongs}: {whose} placed it otherwise{_signed_nought(read, offender)}"
        case Violation.STRAY:
            residue = _hash(read, offender) % stage.cosets
            owner = next((other.task for other in stage.tasks if residue in other.owns), "none")
            return f"{says}, belongs to task {owner} of {len(stage.tasks)}, but task {task.task} took it"
        case _:
            assert_never(offender.violation)


def _signed_nought(read: Input, offender: Offender) -> str:
    """What to do about a key that its producer's bytes tell from one that SQL takes for equal."""
    placement = read.placement
    if placement.key_format != KeyFormat.DOUBLE or offender.key not in {"-0", "-0.0"}:
        return ""
    key = quote(placement.key)
    then = f"declare the stream with hash='opaque' and go on from rekey('key', sql='{key} + 0', key_format='double')"
    return f", by its bytes; in SQL -0.0 equals 0.0, so both are one key: {then}"


def _hash(read: Input, offender: Offender) -> int:
    placement = read.placement
    assert offender.key is not None
    key = read_key(offender.key, placement.key_format)
    return hash_of(placement.hash, read.name)(key, placement.key_format)
