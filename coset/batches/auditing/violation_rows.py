"""Violations: the first records of each task that broke a rule, each with a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from partitioning.hashes import hash_of, homes_of, read_key
from partitioning.model.graph import quote
from partitioning.model.placement import KeyFormat
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.private import MASK
from partitioning.model.receipt import Offender, TaskReceipt, Violation
from partitioning.model.stage_inputs import Input, StreamInput
from partitioning.values import replace


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
    return hash_of(read.placement.hash, read.name)(_key(read, offender), read.placement.key_format)


def _key(read: Input, offender: Offender) -> object:
    assert offender.key is not None
    return read_key(offender.key, read.placement.key_format)
