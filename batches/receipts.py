"""The receipts of an attempt, each held against the plan before anything is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused, plan_anew
from partitioning.model.plan import Plan, TaskGroup
from partitioning.model.receipt import Receipt, TaskReceipt


def receipts(ledger: Ledger, plan: Plan, attempt: int) -> tuple[Receipt, ...]:
    """The receipts of every task group of an attempt.

    Raises Refused, with all findings, if one is missing, is of another plan, or does not say exactly what its tasks
    were planned to read.
    """
    stored, findings = [], list[Finding]()
    for group in plan.groups:
        receipt = ledger.receipt(plan.batch, attempt, group.group)
        where = ledger.uri(ledger.key("receipts", plan.batch, f"attempt-{attempt}", f"group-{group.group}"))
        if receipt is None:
            findings.append(_missing(ledger, plan, group, where))
        else:
            findings.extend(_misfits(plan, attempt, group, receipt, where))
            stored.append(receipt)
    if findings:
        raise Refused(*findings)
    return tuple(stored)


def _missing(ledger: Ledger, plan: Plan, group: TaskGroup, where: str) -> Finding:
    uri = ledger.uri(ledger.key("plans", plan.batch))
    command = f"spark-submit spark_jobs/run_group.py --plan {uri} --digest {digest(plan)} --group {group.group}"
    return Finding(
        f"task group {group.group} of batch {plan.batch} has no receipt: it has not run to its end",
        where,
        f"run `coset run {plan.pipeline}`, or that group alone: `{command}`",
    )


def _misfits(plan: Plan, attempt: int, group: TaskGroup, receipt: Receipt, where: str) -> list[Finding]:
    then = f"run {plan_anew(plan.pipeline)}: the receipt is not one of this plan"
    if receipt.plan != digest(plan):
        return [Finding(f"the receipt is of plan {receipt.plan}, not of {digest(plan)}", where, then)]
    findings = []
    if (receipt.group, receipt.attempt) != (group.group, attempt):
        what = f"the receipt is of group {receipt.group}, attempt {receipt.attempt}"
        findings.append(Finding(what, where, then))
    counts = Counter(task.task for task in receipt.tasks)
    for task in sorted(set(group.tasks) | set(counts)):
        if counts[task] != (task in group.tasks):
            what = f"task {task} has {counts[task]} receipts, planned is {int(task in group.tasks)}"
            findings.append(Finding(what, where, then))
    for stated in receipt.tasks:
        if stated.task in group.tasks:
            findings.extend(Finding(what, where, then) for what in _misread(plan, stated))
    return findings


def _misread(plan: Plan, receipt: TaskReceipt) -> Iterator[str]:
    """Where what a task says it was to read is not what the plan says."""
    name = f"task {receipt.task}"
    reads = plan.task(receipt.task).reads
    streams = {read.name: plan.stream(read.name) for read in plan.stage(receipt.task.stage).streams}
    planned = {(stream, part): str(streams[stream].range(part)) for stream, parts in reads.items() for part in parts}
    stated = Counter((seen.input, seen.partition) for seen in receipt.partitions)
    yield from (f"{name} accounts {n} times for {stream}-{part}" for (stream, part), n in stated.items() if n > 1)
    yield from (f"{name} does not account for {text}" for place, text in planned.items() if place not in stated)
    for seen in receipt.partitions:
        text = f"{seen.input}-{seen.partition}@[{seen.start},{seen.end})"
        if planned.get((seen.input, seen.partition)) != text:
            yield f"{name} accounts for {text}, which is not planned for it"
