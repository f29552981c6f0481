"""Sampled keys: those that each task took, as Great Expectations compares them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from coset.batches.auditing.audit_tables import TABLES, parquet
from coset.sources.s3 import reaching
from partitioning.commands import Replan, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt
from spark_jobs.engine.sampled_keys import unpacked

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
    return _worst_first(pa.concat_tables(tables) if tables else TABLES["keys"].empty_table())


def _file_of_keys(receipt: Receipt, task: TaskReceipt) -> Artefact | None:
    """The file with the sampled keys of a task: that of its group, in versions before 0.3.0 its own."""
    return receipt.keys or next(iter(task.left(Role.KEYS)), None)


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


def _is_of(task: TaskRef) -> pc.Expression:
    return (pc.field("stage") == task.stage) & (pc.field("task") == task.task)


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
