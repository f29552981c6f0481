"""The audit: turns the receipts of a batch into small tables, which Great Expectations judges.

`coverage` has a row for each partition of each input of a stage, `keys` the sampled keys and the tasks that took them,
`violations` the first records that broke a rule, `produced` the output of tasks. All are stored beside the batch, as
Parquet in one ZIP file.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import assert_never
from zipfile import BadZipFile, ZipFile, ZipInfo

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.batches.produced import closed, migrated, produced
from coset.batches.second_look import second_look
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Replan, Run, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import all_left, receipts
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused
from partitioning.hashes import hash_of, read_key
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.graph import quote
from partitioning.model.leaving import Left, leavings, partitions_of
from partitioning.model.offsets import StreamPartition
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
from partitioning.model.private import MASK
from partitioning.model.receipt import (
    MODULUS,
    Offender,
    PartitionReceipt,
    Receipt,
    TaskReceipt,
    Violation,
    least_and_most_read,
    offset_digest,
    range_digest,
    records_by_readers,
)
from partitioning.model.shared_keys import CountedOnce, Place, counted_once
from partitioning.model.streams import NullKeys
from spark_jobs.engine.sampled_keys import unpacked

# Great Expectations judges small tables. Of more keys than this it gets the worst.
KEYS_JUDGED = 50_000
_ENDING = "/tables.zip"

_TEXTS = {
    *("kind", "name", "step", "stage", "input", "key", "violation", "sentence", "null_keys"),
    *("digest_planned", "digest_found", "stream", "first", "bad_records", "digest_aside", "digest_kept"),
    *("keys_before", "keys_after", "over_keys", "met_keys", "alone_keys", "given_keys"),
}


def _schema(columns: str) -> pa.Schema:
    kinds = {"table": pa.bool_(), "counted": pa.bool_(), "of_keys": pa.bool_()} | dict.fromkeys(_TEXTS, pa.string())
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in columns.split()])


_TABLES = {
    "coverage": _schema(
        "stage input partition table null_keys start end planned read_min read_max taken dropped "
        "nulls refused_nulls digest_planned digest_found disorder foreign stray keys "
        "bad_records set_aside kept_aside digest_aside digest_kept copies_differ"
    ),
    "keys": _schema("stage input key task partition offset"),
    "violations": _schema("violation stage task input partition offset key sentence"),
    "moved": _schema("kind name step stage partitions records bytes spared"),
    "gaps": _schema("stream partition gaps looked found first"),
    "produced": _schema("stage task kind name partition counted taken made left"),
    "migrated": _schema("stage task step rows_before rows_after keys_before keys_after"),
    "closed": _schema(
        "stage task step over_rows over_keys met_rows met_keys alone_rows alone_keys late dropped "
        "given_rows given_keys late_versions of_keys"
    ),
}


# Columns of later versions, and what they are in tables of before.
_ADDED = {
    **{"bad_records": "", "set_aside": 0, "kept_aside": 0, "digest_aside": "", "digest_kept": ""},
    "copies_differ": 0,
    **{"dropped": 0, "given_rows": None, "given_keys": None, "late_versions": 0, "of_keys": False},
}


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit tables of an attempt. `_TABLES` has their columns.

    In `coverage`, what tasks say that they set aside stands beside what their files have, as number and digest.
    `copies_differ` counts the tasks that took other records of a hot key than those that share it with them, where all
    have to take the same; otherwise such tasks count as one.
    `coverage.keys` is the number of sampled keys. `keys` holds these keys, up to `KEYS_JUDGED`, first those that more
    than one task took. `partitioning.hashes.read_key` reads their text. `moved` has the output for later tasks, and as
    `spared` the records that a full shuffle would have moved too, by the plan. `produced` is explained in
    `batches.produced`, `gaps` in `batches.second_look`. `migrated` has the rows and keys of each step of which
    tasks wrote all kept rows again, before and after. `closed` has the rows and keys that were over in each task and
    step whose records are given then, those that had met a partner, those given, and the number that came late and, of
    these, that was dropped; of joins as of a time also those given with a version, and how many versions came late.
    What was over is `of_keys` in a step whose keys expire.
    """

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame
    moved: pd.DataFrame
    produced: pd.DataFrame
    gaps: pd.DataFrame
    migrated: pd.DataFrame
    closed: pd.DataFrame


def audit(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Audit the stored receipts of an attempt. Raises Refused as `receipts` and `audit_of`."""
    return audit_of(ledger, plan, attempt, receipts(ledger, plan, attempt))


def audit_of(ledger: Ledger, plan: Plan, attempt: int, read: Sequence[Receipt]) -> Audit:
    """Build the audit tables from the receipts of all task groups, and store them.

    Raises Refused with all findings if a file of sampled keys is missing or is not what its receipt says.
    """
    tasks = {receipt.task: receipt for group in read for receipt in group.tasks}
    left = all_left(ledger, plan, tasks.values())
    once = counted_once(plan, tasks.values())
    tables = {
        "coverage": pa.Table.from_pylist(
            _coverage(plan, left, once, _kept_aside(ledger, tasks.values())), _TABLES["coverage"]
        ),
        "keys": _keys(ledger, plan, read),
        "violations": pa.Table.from_pylist(_violations(plan, tasks.values()), _TABLES["violations"]),
        "moved": pa.Table.from_pylist(list(_moved(plan, tasks.values())), _TABLES["moved"]),
        "gaps": pa.Table.from_pylist(list(second_look(plan, tasks.values())), _TABLES["gaps"]),
        "produced": pa.Table.from_pylist(list(produced(plan, tasks.values())), _TABLES["produced"]),
        "migrated": pa.Table.from_pylist(list(migrated(plan, tasks.values())), _TABLES["migrated"]),
        "closed": pa.Table.from_pylist(list(closed(plan, tasks.values())), _TABLES["closed"]),
    }
    ledger.store.put(_key(ledger, plan, attempt), _packed(tables))
    return Audit(**{name: table.to_pandas(use_threads=False) for name, table in tables.items()})


def load(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read the stored audit tables. Raises Refused as `load_some`."""
    return Audit(**load_some(ledger, plan, attempt, *_TABLES))


def load_some(ledger: Ledger, plan: Plan, attempt: int, *names: str) -> dict[str, pd.DataFrame]:
    """Read some of the audit tables. Batches of older versions do not have all.

    Raises Refused with all findings if one is missing, or has the columns of another version.
    """
    tables, findings = dict[str, pd.DataFrame](), []
    for name, (key, data) in _stored(ledger, plan, attempt, names).items():
        schema = _TABLES[name]
        if data is None:
            findings.append(_audit_again(ledger, "the audit table is missing", key))
            continue
        table = _table(data, ledger.uri(key), AGAIN)
        for added in (field for field in schema if field.name in _ADDED and field.name not in table.schema.names):
            table = table.append_column(added, pa.array([_ADDED[added.name]] * len(table), added.type))
        if not table.schema.equals(schema):
            findings.append(_audit_again(ledger, "the audit table has the columns of another version", key))
        tables[name] = table.to_pandas(use_threads=False)
    if findings:
        raise Refused(*findings)
    return tables


def _stored(ledger: Ledger, plan: Plan, attempt: int, names: Sequence[str]) -> dict[str, tuple[str, bytes | None]]:
    """The stored tables as Parquet, and where each lies. None of one that is not there.

    Raises Refused if their file is damaged.
    """
    key = _key(ledger, plan, attempt)
    packed = ledger.store.get(key)
    if packed is None:
        # Earlier versions have a file for each.
        keys = [f"{key.removesuffix(_ENDING)}/{name}.parquet" for name in names]
        return dict(zip(names, zip(keys, at_once(ledger.store.get, keys), strict=True), strict=True))
    try:
        with ZipFile(io.BytesIO(packed)) as file:
            there = set(file.namelist())
            return {name: (key, file.read(f"{name}.parquet") if f"{name}.parquet" in there else None) for name in names}
    except (BadZipFile, OSError, EOFError) as error:
        raise Refused(_audit_again(ledger, f"the audit tables cannot be read: {error}", key)) from error


def _packed(tables: Mapping[str, pa.Table]) -> bytes:
    """The tables as Parquet in one ZIP file: small files cost a request each."""
    packed = io.BytesIO()
    with ZipFile(packed, "w") as file:
        for name, table in tables.items():
            data = io.BytesIO()
            pq.write_table(table, data, write_page_checksum=True)
            # Without a time, equal tables are equal bytes.
            file.writestr(ZipInfo(f"{name}.parquet"), data.getvalue())
    return packed.getvalue()


def _key(ledger: Ledger, plan: Plan, attempt: int) -> str:
    return f"{ledger.pipeline}/audits/{plan.batch}/attempt-{attempt}{_ENDING}"


def _audit_again(ledger: Ledger, what: str, key: str) -> Finding:
    return Finding.of(
        Kind.BATCH_UNRUN, what, ledger.uri(key), (Run(ledger.pipeline), ": it audits the batch again"), document=key
    )


# By stage, input and partition: how many records that were set aside the files have, and the digest of their offsets.
_Kept = Mapping[tuple[str, str, int], tuple[int, int]]


def _coverage(plan: Plan, left: Left, once: CountedOnce, kept: _Kept) -> list[dict[str, object]]:
    accounts: dict[Place, list[PartitionReceipt]] = defaultdict(list)
    for task in once.tasks:
        for seen in task.partitions:
            accounts[task.task.stage, seen.input, seen.partition].append(seen)
    return [
        _coverage_row(stage.name, expected, accounts[place], *kept.get(place, (0, 0)))
        | {"copies_differ": once.differing.get(place, 0)}
        for stage in plan.stages
        for read in stage.inputs
        for expected in _expected(plan, left, read)
        for place in [(stage.name, read.name, expected.partition)]
    ]


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
        for row in _table(data, where, then).select(["stream", "partition", "offset"]).to_pylist():
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
        "foreign": total("foreign"),
        "stray": total("stray"),
        "keys": total("keys"),
        "bad_records": expected.bad_records,
        "set_aside": total("set_aside"),
        "kept_aside": kept,
        "digest_aside": _text(sum(int(seen.digest_aside or "0", 16) for seen in accounts) % MODULUS),
        "digest_kept": _text(digest_kept),
    }


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


def _keys(ledger: Ledger, plan: Plan, read: Iterable[Receipt]) -> pa.Table:
    """The sampled keys of all tasks, up to `KEYS_JUDGED`, first those that several tasks of a stage took. Tasks that
    share a hot key are the first of them."""
    first = {
        TaskRef(stage.name, number): TaskRef(stage.name, numbers[0])
        for stage in plan.stages
        for numbers in stage.shares
        for number in numbers
    }
    then: Then = (Replan(ledger.pipeline), ": the proof of this batch cannot be completed")
    sampled = [
        (task, _file_of_keys(receipt, task))
        for receipt in read
        for task in receipt.tasks
        if any(seen.keys for seen in task.partitions)
    ]
    files = list(dict.fromkeys(file for _, file in sampled if file))
    stored = dict(zip(files, at_once(partial(_keys_in, ledger, then), files), strict=True))
    tables, findings = [], []
    for task, file in sampled:
        expected = {(seen.input, seen.partition): seen.keys for seen in task.partitions if seen.keys}
        where, found = ledger.uri(file.path if file else f"{ledger.pipeline}/audits"), stored[file] if file else None
        if found is None:
            what = f"the sampled keys of task {task.task} are missing"
            findings.append(Finding.of(Kind.TASK_FILES, what, where, then, task=task.task))
            continue
        if "stage" in found.schema.names:
            found = found.filter(_is_of(task.task))
        table = _task_keys(first.get(task.task, task.task), found)
        counted = table.group_by(["input", "partition"], use_threads=False).aggregate([([], "count_all")]).to_pydict()
        places = zip(counted["input"], counted["partition"], strict=True)
        if dict(zip(places, counted["count_all"], strict=True)) != expected:
            what = f"task {task.task} sampled {sum(expected.values()):,} keys, its file holds {len(table):,} others"
            findings.append(Finding.of(Kind.TASK_FILES, what, where, then, task=task.task, keys=len(table)))
        tables.append(table)
    if findings:
        raise Refused(*findings)
    return _worst_first(pa.concat_tables(tables) if tables else _TABLES["keys"].empty_table())


def _file_of_keys(receipt: Receipt, task: TaskReceipt) -> Artefact | None:
    """The file with the sampled keys of a task: that of its group, in versions before 0.3.0 its own."""
    return receipt.keys or next(iter(task.left(Role.KEYS)), None)


def _keys_in(ledger: Ledger, then: Then, file: Artefact) -> pa.Table | None:
    """The sampled keys in a file. None if there is no such file. Raises Refused if it is damaged."""
    data, where = ledger.store.get(file.path), ledger.uri(file.path)
    if data is None:
        return None
    if not file.path.endswith(".arrow"):
        return _table(data, where, then)
    content = f"sha256:{sha256(data).hexdigest()}"
    if content != file.digest:
        what = f"the file has the content {content}, not {file.digest}"
        raise Refused.of(Kind.TASK_FILES, what, where, then, file=file.path)
    with reaching("the file cannot be read", where, then):
        return unpacked(data)


def _is_of(task: TaskRef) -> pc.Expression:
    return (pc.field("stage") == task.stage) & (pc.field("task") == task.task)


def _table(data: bytes, where: str, then: Then) -> pa.Table:
    """The content of a Parquet file. Raises Refused if it is damaged."""
    with reaching("the file cannot be read", where, then):
        return pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read(use_threads=False)


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
    of_key = ["stage", "key"]
    taken = sampled.group_by(of_key, use_threads=False).aggregate([("task", "min"), ("task", "max")])
    by_one = pc.equal(taken["task_min"], taken["task_max"])
    marked = sampled.join(taken.select(of_key).append_column("by one", by_one), of_key, use_threads=False)
    order = ("by one", *of_key, "task", "input", "partition")
    places = pc.sort_indices(marked, [(name, "ascending") for name in order])
    return marked.take(places[:KEYS_JUDGED]).select(_TABLES["keys"].names).cast(_TABLES["keys"])


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
        case Violation.SET_ASIDE:
            return f"{at}: {offender.why}"
        case Violation.OFFSET:
            return f"{at} does not follow the offset before it"
        case Violation.FOREIGN if offender.key == MASK:
            return f"{says}, belongs in another partition"
        case Violation.STRAY if offender.key == MASK:
            return f"{says}, belongs to another task than {task.task}, which took it"
        case Violation.FOREIGN:
            count = read.placement.partitions
            home = _hash(read, offender) % count
            belongs = f"belongs in partition {home} of {count}"
            if count != (read.partitions if isinstance(read, StreamInput) else len(read.numbers)):
                belongs = f"belongs in a partition ≡ {home} modulo {count}"
            whose = "its producer" if isinstance(read, StreamInput) else "the task that wrote it"
            return f"{says}, {belongs}, where {whose} did not put it{_signed_zero(read, offender)}"
        case Violation.STRAY:
            residue = _hash(read, offender) % stage.cosets
            owner = next((other.task for other in stage.tasks if residue in other.owns), "none")
            return f"{says}, belongs to task {owner} of {len(stage.tasks)}, but task {task.task} took it"
        case _:
            assert_never(offender.violation)


def _signed_zero(read: Input, offender: Offender) -> str:
    """The remedy for the key -0.0: SQL takes it for equal to 0.0, but the producer's bytes differ."""
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
