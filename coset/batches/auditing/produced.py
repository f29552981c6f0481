"""What tasks made: rows of steps beside rows of files, sampled keys, and the first records that broke a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from coset.batches.auditing.audit_tables import TABLES, parquet
from coset.sources.s3 import reaching
from partitioning.commands import Replan, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused, refuse
from partitioning.hashes import hash_of, homes_of, read_key
from partitioning.kinds import Kind
from partitioning.model.graph import Op, quote, waiting
from partitioning.model.leaving import given_to, leavings
from partitioning.model.placement import KeyFormat
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.private import MASK
from partitioning.model.receipt import Artefact, Made, Offender, Receipt, Role, TaskReceipt, Violation
from partitioning.model.stage_inputs import Input, StateInput, StreamInput
from partitioning.values import replace
from spark_jobs.engine.sampled_keys import unpacked

# These steps pass each record on unchanged.
_MOVING = (Op.MERGE, Op.REPARTITION)


def produced(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each of its outputs. An upserted table has one for each partition."""
    for task in tasks:
        stage = plan.stage(task.task.stage)
        made = {(each.role, each.name): each for each in task.made or ()}
        files: dict[tuple[Role, str], list[Artefact]] = {}
        for artefact in task.artefacts:
            files.setdefault((artefact.role, artefact.name), []).append(artefact)
        upserted = {write.declared.table for write in stage.writes if write.declared.mode.by_key}
        asked = [(Role.TABLE, write.declared.table, write.declared.step) for write in stage.writes]
        asked += [(left.role, left.name, left.step) for left in leavings(plan, task.task)]
        asked += [(Role.GIVEN, name, read) for name, read in _given(stage)]
        for role, name, step in asked:
            row = {"stage": stage.name, "task": task.task.task, "kind": role.value, "name": name}
            row |= {"counted": task.made is not None, "partition": None, "taken": None}
            stated, there = made.get((role, name)), files.get((role, name), [])
            if role is Role.TABLE and name in upserted:
                yield from (row | part for part in _by_partition(stated, there))
            else:
                figures = {"made": stated.records if stated else None, "left": sum(file.records for file in there)}
                taken = None if role is Role.STATE else _taken(plan, stage, task, step)
                yield row | figures | {"taken": taken}


def migrated(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each step of which it had to write all kept rows again: rows, keys, before and after."""
    for task in tasks:
        said = {each.step: each for each in task.migrated}
        for read in plan.stage(task.task.stage).inputs:
            if isinstance(read, StateInput) and read.migration:
                row = {"stage": task.task.stage, "task": task.task.task, "step": read.step}
                if each := said.get(read.step):
                    row |= {"rows_before": each.before.rows, "keys_before": each.before.digest}
                    row |= {"rows_after": each.after.rows, "keys_after": each.after.digest}
                yield row


def closed(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each task and each step whose records are given once their time is over."""
    for task in tasks:
        said = {each.step: each for each in task.closed}
        for name, as_of, of_keys in _waiting(plan.stage(task.task.stage)):
            row: dict[str, object] = {"stage": task.task.stage, "task": task.task.task, "step": name}
            row |= {"late_versions": 0, "of_keys": of_keys}
            if (each := said.get(name)) and as_of == (each.versions is not None):
                parts = {"over": each.over, "met": each.met, "alone": each.alone}
                row |= {f"{part}_rows": keyed.rows for part, keyed in parts.items()}
                row |= {f"{part}_keys": keyed.digest for part, keyed in parts.items()} | {"late": each.late}
                row |= {"dropped": each.dropped}
                if versions := each.versions:
                    row |= {"given_rows": versions.given.rows, "given_keys": versions.given.digest}
                    row |= {"late_versions": versions.late}
            yield row


def _waiting(stage: Stage) -> Iterator[tuple[str, bool, bool]]:
    """The steps whose records are given once their time is over, whether it is by a join as of a time, and whether keys
    expire instead."""
    steps = {step.name: step for step in stage.steps}
    for step in stage.steps:
        inputs = (steps[name].state for name in step.inputs if name in steps)
        as_of = any(state and state.newest for state in inputs)
        of_keys = step.state is not False and step.state.of_lives
        yield from ((name, as_of, of_keys) for name in waiting(step, steps))


def _given(stage: Stage) -> Iterator[tuple[str, str]]:
    """The inputs of steps on DataFrames, each with its stream or step."""
    for step in stage.steps:
        yield from zip(given_to(step), step.inputs, strict=False)


def _by_partition(stated: Made | None, files: Iterable[Artefact]) -> Iterator[dict[str, object]]:
    """The rows made and written of each partition of an upserted table. A partition that is rewritten has to have a
    file, even without rows; no other may have one."""
    made = dict(stated.parts) if stated else {}
    left = {part.partition: file.records for file in files for part in file.parts}
    for partition in sorted(made.keys() | left.keys()):
        yield {"partition": partition, "made": made.get(partition), "left": left.get(partition)}


def _taken(plan: Plan, stage: Stage, task: TaskReceipt, name: str) -> int | None:
    """How many records a task took for `name`, if all steps on the way only move records. Otherwise None."""
    step = next((step for step in stage.steps if step.name == name), None)
    if step is not None:
        parts = [_taken(plan, stage, task, given) for given in step.inputs] if step.op in _MOVING else [None]
        return None if None in parts else sum(part for part in parts if part is not None)
    inputs = [read for read in stage.inputs if read.step == name and not isinstance(read, StateInput)]
    if not inputs or any(_is_table(plan, read.step) for read in inputs):
        return None
    names = {read.name for read in inputs}
    return sum(seen.taken for seen in task.partitions if seen.input in names)


def _is_table(plan: Plan, name: str) -> bool:
    """Whether the stream is a table, of which only the latest record of each key counts."""
    return any(stream.name == name and stream.declared.table for stream in plan.streams)


# Great Expectations judges small tables. Of more keys than this it gets the worst.
KEYS_JUDGED = 50_000


def judged_keys(ledger: Ledger, plan: Plan, read: Iterable[Receipt]) -> pa.Table:
    """The sampled keys of all tasks, up to `KEYS_JUDGED`, first those that several tasks of a stage took. Tasks that
    share a hot key are the first of them.

    Raises Refused with all findings if a file of sampled keys is missing or is not what its receipt says.
    """
    first = {
        TaskRef(stage.name, number): TaskRef(stage.name, numbers[0])
        for stage in plan.stages
        for numbers in stage.shares
        for number in numbers
    }
    then: Then = (Replan(ledger.pipeline), ": the proof of this batch cannot be completed")
    sampled = [
        # Versions before 0.3.0 gave each task a file of its own.
        (task, receipt.keys or next(iter(task.left(Role.KEYS)), None))
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
            found = found.filter((pc.field("stage") == task.task.stage) & (pc.field("task") == task.task.task))
        table = _task_keys(first.get(task.task, task.task), found)
        counted = table.group_by(["input", "partition"], use_threads=False).aggregate([([], "count_all")]).to_pydict()
        places = zip(counted["input"], counted["partition"], strict=True)
        if dict(zip(places, counted["count_all"], strict=True)) != expected:
            what = f"task {task.task} sampled {sum(expected.values()):,} keys, its file holds {len(table):,} others"
            findings.append(Finding.of(Kind.TASK_FILES, what, where, then, task=task.task, keys=len(table)))
        tables.append(table)
    refuse(findings)
    return _worst_first(pa.concat_tables(tables) if tables else TABLES["keys"].empty_table())


def _keys_in(ledger: Ledger, then: Then, file: Artefact) -> pa.Table | None:
    """The sampled keys in a file. None if there is no such file. Raises Refused if it is damaged."""
    data, where = ledger.store.get(file.path), ledger.uri(file.path)
    if data is None:
        return None
    if not file.path.endswith(".arrow"):
        return parquet(data, where, then)
    content = f"sha256:{sha256(data).hexdigest()}"
    if content != file.digest:
        what = f"the file has the content {content}, not {file.digest}"
        raise Refused.of(Kind.TASK_FILES, what, where, then, file=file.path)
    with reaching("the file cannot be read", where, then):
        return unpacked(data)


def _task_keys(task: TaskRef, file: pa.Table) -> pa.Table:
    columns = {
        "stage": pa.array([task.stage] * len(file), pa.string()),
        "task": pa.array([task.task] * len(file), pa.int64()),
    }
    return pa.table(
        [columns[field.name] if field.name in columns else file[field.name] for field in TABLES["keys"]],
        names=TABLES["keys"].names,
    ).cast(TABLES["keys"])


def _worst_first(sampled: pa.Table) -> pa.Table:
    of_key = ["stage", "key"]
    taken = sampled.group_by(of_key, use_threads=False).aggregate([("task", "min"), ("task", "max")])
    by_one = pc.equal(taken["task_min"], taken["task_max"])
    marked = sampled.join(taken.select(of_key).append_column("by one", by_one), of_key, use_threads=False)
    order = ("by one", *of_key, "task", "input", "partition")
    places = pc.sort_indices(marked, [(name, "ascending") for name in order])
    return marked.take(places[:KEYS_JUDGED]).select(TABLES["keys"].names).cast(TABLES["keys"])


def violations(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    """A row for each offender in the receipts."""
    for task in tasks:
        for seen in task.partitions:
            for offender in seen.offenders:
                yield {
                    "violation": offender.violation.value,
                    "stage": task.task.stage,
                    "task": task.task.task,
                    "input": seen.input,
                    "partition": offender.partition,
                    "offset": offender.offset,
                    "key": offender.key,
                    "sentence": _sentence(plan, task.task, seen.input, offender),
                }


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
            lies = read.placement
            if isinstance(read, StreamInput):
                lies = replace(lies, hash=plan.stream(read.name).declared.hash)
            homes = " or ".join(map(str, homes_of(_key(read, offender), lies, read.name)))
            belongs = f"belongs in partition {homes} of {count}"
            if count != (read.partitions if isinstance(read, StreamInput) else len(read.numbers)):
                belongs = f"belongs in a partition ≡ {homes} modulo {count}"
            whose = "its producer" if isinstance(read, StreamInput) else "the task that wrote it"
            return f"{says}, {belongs}, where {whose} did not put it{_signed_zero(read, offender)}"
        case Violation.STRAY:
            residue = _hash(read, offender) % stage.cosets
            owner = next((other.task for other in stage.tasks if residue in other.owns), "none")
            return f"{says}, belongs to task {owner} of {len(stage.tasks)}, but task {task.task} took it"


def _signed_zero(read: Input, offender: Offender) -> str:
    """The remedy for the key -0.0: SQL takes it for equal to 0.0, but the producer's bytes differ."""
    placement = read.placement
    if placement.key_format != KeyFormat.DOUBLE or offender.key not in {"-0", "-0.0"}:
        return ""
    key = quote(placement.key)
    then = f"declare the stream with hash='opaque' and go on from rekey('key', sql='{key} + 0', key_format='double')"
    return f", by its bytes; in SQL -0.0 equals 0.0, so both are one key: {then}"


def _hash(read: Input, offender: Offender) -> int:
    return hash_of(read.placement.hash, read.name)(_key(read, offender), read.placement.key_format)


def _key(read: Input, offender: Offender) -> object:
    assert offender.key is not None
    return read_key(offender.key, read.placement.key_format)
