"""Assignment: which task of a stage reads which stream partitions, and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm

from partitioning.cosets import needs_filter, partitions_of
from partitioning.errors import Finding, Refused
from partitioning.offsets import check_name
from partitioning.schemes import Scheme

MOST_READS = 10_000_000


@dataclass(frozen=True, order=True, slots=True)
class Residues:
    """Keep only the records whose `h(key) mod modulus` is one of `residues`, ascending.

    >>> print(Residues(8, (3,)), Residues(8, (3, 5)), sep="; ")
    h(key) mod 8 = 3; h(key) mod 8 in 3, 5
    """

    modulus: int
    residues: tuple[int, ...]

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.residues))
        return f"h(key) mod {self.modulus} {'=' if len(self.residues) == 1 else 'in'} {listed}"


@dataclass(frozen=True, slots=True)
class Task:
    """The unit of a stage: `reads` maps each input to partition numbers, ascending.

    `owns` are the residues, modulo the stage's cosets, of the keys that are the task's: its own number under
    the coset rule, none where keys are not kept together. `filters` has an entry for each input of which it
    reads partitions that hold other tasks' keys as well. A `null_keys` task takes nothing but the records
    without a key of the streams it reads.
    """

    task: int
    reads: Mapping[str, tuple[int, ...]]
    filters: Mapping[str, Residues] = field(default_factory=dict)
    null_keys: bool = False
    owns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tasks of one stage under a scheme, by task number."""

    scheme: str
    tasks: tuple[Task, ...]


def assign(streams: Sequence[tuple[str, int]], scheme: Scheme) -> Assignment:
    """Assign the partitions of `streams` (name and partition count, in declared order) to tasks.

    AdViews and AdClicks of SAMZA-71:

    >>> assign([("views", 8), ("clicks", 12)], Scheme.parse("cogroup")).tasks[3].reads
    {'views': (3, 7), 'clicks': (3, 7, 11)}

    Raises Refused, with all findings, for no streams, a repeated stream, a count below 1 or a mapping that is
    too large to be meant.
    """
    _check(streams)
    _check_size(streams, scheme)
    if scheme.kind == "max":
        return Assignment(str(scheme), _one_task_per_partition(streams))
    tasks = scheme.tasks([count for _, count in streams])
    return Assignment(str(scheme), tuple(_coset(task, tasks, streams) for task in range(tasks)))


def _coset(task: int, tasks: int, streams: Sequence[tuple[str, int]]) -> Task:
    reads = {name: partitions_of(task, tasks, count) for name, count in streams}
    filters = {name: Residues(tasks, (task,)) for name, count in streams if needs_filter(tasks, count)}
    return Task(task, reads, filters, owns=(task,))


def _one_task_per_partition(streams: Sequence[tuple[str, int]]) -> tuple[Task, ...]:
    pairs = [(name, partition) for name, count in streams for partition in range(count)]
    return tuple(Task(task, {name: (partition,)}) for task, (name, partition) in enumerate(pairs))


def _check(streams: Sequence[tuple[str, int]]) -> None:
    findings = []
    if not streams:
        findings.append(Finding("no streams to assign", "streams", "name at least one, as views=8"))
    names = [name for name, _ in streams]
    for name in sorted({name for name in names if names.count(name) > 1}):
        findings.append(Finding(f"stream {name!r} is named twice", name, "name each stream once"))
    for name, count in streams:
        try:
            check_name(name, "stream")
        except Refused as refusal:
            findings.extend(refusal.findings)
        if count < 1:
            findings.append(Finding(f"stream {name!r} has {count} partitions", name, "a stream has at least 1"))
    if findings:
        raise Refused(*findings)


def _check_size(streams: Sequence[tuple[str, int]], scheme: Scheme) -> None:
    counts = [count for _, count in streams]
    tasks = scheme.tasks(counts)
    # Each stream has lcm(n, L) pairs of a partition and a task that share keys; under max a task has one.
    reads = tasks if scheme.kind == "max" else sum(lcm(count, tasks) for count in counts)
    if reads > MOST_READS:
        raise Refused(
            Finding(
                f"{tasks:,} tasks would read {reads:,} stream partitions, more than {MOST_READS:,}",
                f"scheme {scheme}",
                "use a number of tasks that divides, or is a multiple of, the partition counts",
            )
        )
