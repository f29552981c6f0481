"""The receipts of an attempt, the state that earlier batches left, each held against the plan, and where groups ran.

Where groups ran is a hint for the next plan. What is not known of a group changes no result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from partitioning.commands import Replan, Run, Then
from partitioning.documents.document import decode, digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, at_once
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.leaving import (
    Left,
    LeftPartition,
    given_to,
    leavings,
    left_by,
    left_in,
    partitions_of,
    writers_of,
)
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.receipt import Artefact, Receipt, Role, TaskReceipt
from partitioning.model.stage_inputs import PlannedPartition, StateInput, StateRun, StreamInput
from partitioning.model.statistics import Locality
from partitioning.model.verdict import Verdict
from partitioning.values import Document, replace


def states_left(ledger: Ledger, plan: Plan, stages: Iterable[str] | None = None) -> Left:
    """The state that these stages, or all, continue from: by the name of the input, oldest runs first.

    Raises Refused, with all findings, if a verdict is not the one that the plan names, or names other files.
    """
    wanted = None if stages is None else set(stages)
    left, findings, kept = dict[str, Mapping[int, LeftPartition]](), list[Finding](), StateFiles(ledger, plan)
    for stage in (stage for stage in plan.stages if wanted is None or stage.name in wanted):
        for read in (read for read in stage.inputs if isinstance(read, StateInput)):
            files = list[tuple[Artefact, ...]]()
            for run in read.runs:
                with noting(findings):
                    files.append(kept.of(read, run))
            if len(files) == len(read.runs):
                left |= left_as(read, files)
    refuse(findings)
    return left


def left_as(read: StateInput, files: Sequence[Sequence[Artefact]]) -> Left:
    """The rows of a state, oldest runs first. `files` has those of each of its runs, in their order."""
    runs = reversed([*zip(read.runs, files, strict=True)])
    return left_in((file.task, replace(file, name=read.name), run.version) for run, named in runs for file in named)


class StateFiles:
    """The files of states that a plan names. A verdict is fetched once, however many of them it names."""

    def __init__(self, ledger: Ledger, plan: Plan, verdict: Verdict | None = None) -> None:
        """A `verdict` that is given need not be stored."""
        self._ledger = ledger
        self._plan = plan
        self._verdicts: dict[tuple[int, str], Verdict | None] = {}
        if verdict:
            self._verdicts[verdict.batch, digest(verdict)] = verdict

    def of(self, read: StateInput, run: StateRun) -> tuple[Artefact, ...]:
        """The files of a run of a state. Raises Refused if they are not those that the plan was made from."""
        verdict = self._verdict(run)
        where = self._ledger.uri(self._ledger.key("verdicts", run.batch))
        then = ("restore the document from a backup, or ", Replan(self._plan.pipeline))
        if verdict is None or digest(verdict) != run.verdict:
            there = "is gone" if verdict is None else f"has the digest {digest(verdict)}"
            what = f"the verdict {run.verdict}, which names {read.name}, {there}"
            raise Refused.of(Kind.STATE_GONE, what, where, then, verdict=run.verdict, state=read.name)
        name = read.written_as(run)
        named = (file for file in verdict.artefacts if (file.role, file.name) == (Role.STATE, name))
        files = tuple(sorted(named, key=lambda file: (file.task, file.path)))
        if (records := sum(file.records for file in files)) != run.records:
            what = f"it names {records:,} records of {read.name}, planned are {run.records:,}"
            raise Refused.of(Kind.STATE_GONE, what, where, then, state=read.name, records=records, planned=run.records)
        return files

    def _verdict(self, run: StateRun) -> Verdict | None:
        """The verdict that a run names, which may be a backfill's; that of the batch if there is no such one."""
        place = run.batch, run.verdict
        if place not in self._verdicts:
            first = None
            for verdict in self._ledger.verdicts(run.batch):
                first = first or verdict
                if digest(verdict) == run.verdict:
                    first = verdict
                    break
            self._verdicts[place] = first
        return self._verdicts[place]


def receipts(ledger: Ledger, plan: Plan, attempt: int) -> tuple[Receipt, ...]:
    """The receipts of every task group of an attempt.

    Raises Refused, with all findings, if one is missing, is of another plan, or does not say exactly what its tasks
    were planned to read.
    """
    stored, findings = _stored(ledger, plan, attempt, plan.groups), list[Finding]()
    left = all_left(ledger, plan, (task for receipt in stored for task in receipt.tasks))
    then = _not_of_this_plan(plan)
    for receipt in stored:
        where = _where(ledger, plan, attempt, receipt.group)
        for task in receipt.tasks:
            for number, what in enumerate((*_wrong_reads(plan, left, task), *_wrong_outputs(plan, task))):
                findings.append(Finding.of(Kind.TASK_FILES, what, where, then, task=task.task, number=number))
    refuse(findings)
    return stored


def without_digests(ledger: Ledger, plan: Plan, attempt: int, stored: Iterable[Receipt]) -> Iterator[Finding]:
    """Findings for receipts whose offsets cannot be compared: a version with other digests wrote them."""
    for receipt in stored:
        if any(not seen.digest for task in receipt.tasks for seen in task.partitions):
            what = f"task group {receipt.group} was run by an older version, whose digests of offsets were others"
            then = (Run(plan.pipeline), ": it runs the batch again, in a new attempt")
            where = _where(ledger, plan, attempt, receipt.group)
            yield Finding.of(Kind.DOCUMENT_FORMAT, what, where, then, group=receipt.group)


def left_for(ledger: Ledger, plan: Plan, attempt: int, group: TaskGroup) -> Left:
    """What tasks of earlier waves left for those of a group, by their receipts, and those of earlier batches.

    Raises Refused, with all findings, if one of these is missing or is of another plan.
    """
    stages = writers_of(plan, group.tasks)
    writing = [other for other in plan.groups if any(task.stage in stages for task in other.tasks)]
    left = [task for receipt in _stored(ledger, plan, attempt, writing) for task in receipt.tasks]
    return all_left(ledger, plan, left, (task.stage for task in group.tasks))


def all_left(ledger: Ledger, plan: Plan, tasks: Iterable[TaskReceipt], stages: Iterable[str] | None = None) -> Left:
    """What these tasks left for later ones, and what earlier batches left for these stages, or for all.

    Raises Refused as `states_left`.
    """
    return {**left_by(tasks), **states_left(ledger, plan, stages)}


def _stored(ledger: Ledger, plan: Plan, attempt: int, groups: Iterable[TaskGroup]) -> tuple[Receipt, ...]:
    """The receipts of these groups. Raises Refused, with all findings, if one is missing or is of another plan."""
    stored, findings, asked = list[Receipt](), list[Finding](), list(groups)
    found = ledger.receipts(plan.batch, attempt, (group.group for group in asked))
    for group in asked:
        receipt = found.get(group.group)
        if receipt is None:
            findings.append(_missing(ledger, plan, attempt, group))
        else:
            findings.extend(_of_another(ledger, plan, attempt, group, receipt))
            stored.append(receipt)
    refuse(findings)
    return tuple(stored)


def _where(ledger: Ledger, plan: Plan, attempt: int, group: int) -> str:
    return ledger.uri(ledger.key("receipts", plan.batch, f"attempt-{attempt}", f"group-{group}"))


def _not_of_this_plan(plan: Plan) -> Then:
    return Replan(plan.pipeline), ": the receipt is not one of this plan"


def _missing(ledger: Ledger, plan: Plan, attempt: int, group: TaskGroup) -> Finding:
    uri = ledger.uri(ledger.key("plans", plan.batch))
    command = f"spark-submit spark_jobs/run_group.py --plan {uri} --digest {digest(plan)} --group {group.group}"
    what = f"task group {group.group} of batch {plan.batch} has no receipt: it has not run to its end"
    then = (Run(plan.pipeline), f", or that group alone: `{command}`")
    return Finding.of(
        Kind.BATCH_UNRUN, what, _where(ledger, plan, attempt, group.group), then, group=group.group, batch=plan.batch
    )


def _of_another(ledger: Ledger, plan: Plan, attempt: int, group: TaskGroup, receipt: Receipt) -> Iterator[Finding]:
    """Findings for a receipt of another plan, attempt or group, or of other tasks than the group's."""
    where, then = _where(ledger, plan, attempt, group.group), _not_of_this_plan(plan)
    if receipt.plan != digest(plan):
        what = f"the receipt is of plan {receipt.plan}, not of {digest(plan)}"
        yield Finding.of(Kind.TASK_FILES, what, where, then, plan=digest(plan), found=receipt.plan)
        return
    if (receipt.group, receipt.attempt) != (group.group, attempt):
        what = f"the receipt is of group {receipt.group}, attempt {receipt.attempt}"
        yield Finding.of(Kind.TASK_FILES, what, where, then, group=receipt.group, attempt=receipt.attempt)
    counts = Counter(task.task for task in receipt.tasks)
    for task in sorted(set(group.tasks) | set(counts)):
        if counts[task] != (task in group.tasks):
            what = f"task {task} has {counts[task]} receipts, planned is {int(task in group.tasks)}"
            yield Finding.of(Kind.TASK_FILES, what, where, then, task=task, counts=counts[task])


def _wrong_reads(plan: Plan, left: Left, receipt: TaskReceipt) -> Iterator[str]:
    """Differences between what a task says it was to read and the plan, or what other tasks left."""
    name = f"task {receipt.task}"
    planned = _planned(plan, left, receipt)
    stated = Counter((seen.input, seen.partition) for seen in receipt.partitions)
    yield from (f"{name} accounts {n} times for {stream}-{part}" for (stream, part), n in stated.items() if n > 1)
    yield from (f"{name} does not account for {text}" for place, text in planned.items() if place not in stated)
    for seen in receipt.partitions:
        text = f"{seen.input}-{seen.partition}@[{seen.start},{seen.end})"
        if planned.get((seen.input, seen.partition)) != text:
            yield f"{name} accounts for {text}, which is not planned for it"


def _planned(plan: Plan, left: Left, receipt: TaskReceipt) -> dict[tuple[str, int], str]:
    """The ranges that a task was to read, as text, by input and partition."""
    task = plan.task(receipt.task)
    planned: dict[tuple[str, int], str] = {}
    for read in plan.stage(receipt.task.stage).inputs:
        partitions: Sequence[PlannedPartition | LeftPartition] = ()
        if isinstance(read, StreamInput):
            partitions = plan.stream(read.name).read_by(task)
        else:
            partitions = partitions_of(left, read.name, task.reads.get(read.name, ()))
        for partition in partitions:
            number = partition.partition
            planned[read.name, number] = f"{read.name}-{number}@[{partition.start},{partition.end})"
    return planned


def _wrong_outputs(plan: Plan, receipt: TaskReceipt) -> Iterator[str]:
    """Differences between what a task says it left and the plan, and contradictions in what it says."""
    planned = {(leaving.role, leaving.name): leaving for leaving in leavings(plan, receipt.task)}
    stated = [artefact for artefact in receipt.artefacts if artefact.role in (Role.EXCHANGE, Role.RESULT, Role.STATE)]
    counts = Counter((artefact.role, artefact.name) for artefact in stated)
    yield from (f"task {receipt.task} left {name} {n} times" for (_, name), n in counts.items() if n > 1)
    steps = plan.stage(receipt.task.stage).steps
    given = Counter(artefact.name for artefact in receipt.left(Role.GIVEN))
    if given != Counter(name for step in steps for name in given_to(step)):
        listed = ", ".join(given) or "nothing"
        yield f"task {receipt.task} gave {listed} to steps on DataFrames, which is not as planned"
    for artefact in stated:
        leaving = planned.get((artefact.role, artefact.name))
        if leaving is None:
            yield f"task {receipt.task} left {artefact.name}, which is not planned for it"
        elif not _is_index(artefact, leaving.numbers):
            yield f"what task {receipt.task} says it left of {artefact.name} does not agree with itself"


def _is_index(artefact: Artefact, numbers: range) -> bool:
    """Whether the parts are in order, within the file and of partitions with these numbers, and all its records."""
    at = (-1, 0)
    for part in artefact.parts:
        if not (
            at[0] < part.partition and part.partition in numbers and at[1] <= part.start < part.end <= artefact.size
        ):
            return False
        at = part.partition, part.end
    return sum(part.records for part in artefact.parts) == artefact.records


class GroupLocality(Document, frozen=True):
    """Where a task group first ran in a batch, and the tasks that ran there. Versions before 0.3.0 stored it beside
    each receipt."""

    FORMAT: ClassVar[str] = "coset.locality/2"

    group: int
    location: str
    tasks: tuple[TaskRef, ...]


def locations(store: Store, plan: Plan, receipts: Iterable[Receipt]) -> Locality | None:
    """The locations of a plan's groups and tasks, by their receipts; None if none is known.

    Raises Refused for a damaged document of an older version.
    """
    said = {receipt.group: receipt.location for receipt in receipts}
    older = [group for group, location in said.items() if not location]
    found = said | dict(zip(older, at_once(lambda group: _of_older_version(store, plan, group), older), strict=True))
    known = {group: location for group, location in found.items() if location}
    tasks = {task: known[group.group] for group in plan.groups if group.group in known for task in group.tasks}
    return Locality(known, tasks) if known else None


def _of_older_version(store: Store, plan: Plan, group: int) -> str:
    key = f"{plan.pipeline}/locality/{plan.batch}/group-{group}.json"
    data = store.get(key)
    return "" if data is None else decode(GroupLocality, data, f"{store.root}/{key}").location
