"""Assignment: the input partitions of each task of a stage, its filters, and ranges where several share a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import gcd

from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.offsets import Span, check_name
from partitioning.model.placement import each_of
from partitioning.model.reasons import OwnTask, OwnTasks
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.stage_inputs import Input, PlannedPartition, StreamInput
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Residues, Task
from partitioning.values import Value, replace

MOST_READS = 10_000_000


class Assignment(Value, frozen=True):
    """The tasks of one stage under a scheme, by task number."""

    scheme: str
    tasks: tuple[Task, ...]


class Reading(Value, frozen=True):
    """An input of tasks: partition p of its `partitions` holds the keys with `h(key) mod partitions = p`.

    An input that is not `keyed` holds any key in any partition; one task reads each partition whole. One that is
    `scattered` does too, and each task reads all of them for its keys. If `only` is given, the input has just these
    partitions.
    """

    name: str
    partitions: int
    keyed: bool = True
    only: tuple[int, ...] | None = None
    scattered: bool = False

    @classmethod
    def of(cls, read: Input) -> Reading:
        """An input of a stage, for its tasks to read."""
        keyed, scattered = bool(read.placement.key), len(each_of(read.placement.hash)) > 1
        if isinstance(read, StreamInput):
            return cls(read.name, read.partitions, keyed, read.only, scattered)
        return cls(read.name, len(read.numbers), keyed, scattered=scattered)

    def shared(self, cosets: int) -> int:
        """The modulus by which a partition and a coset have keys in common, as `Placement.shared` has it."""
        return 1 if self.scattered else gcd(self.partitions, cosets)

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions to be read, ascending."""
        return range(self.partitions) if self.only is None else self.only


def assign(streams: Sequence[tuple[str, int]], scheme: Scheme) -> Assignment:
    """Assign the partitions of `streams` (name and partition count, in declared order) to tasks.

    AdViews and AdClicks of SAMZA-71:

    >>> assign([("views", 8), ("clicks", 12)], Scheme.parse("cogroup")).tasks[3].reads
    {'views': (3, 7), 'clicks': (3, 7, 11)}

    Raises Refused, with all findings, for no streams, a repeated stream, a count below 1 or a mapping that is
    too large to be meant.
    """
    _check(streams)
    readings = [Reading(name, count) for name, count in streams]
    tasks = scheme.tasks([count for _, count in streams])
    if scheme.most_records is not None:
        what = f"scheme {scheme} goes by the records of a batch, of which partition counts say nothing"
        then = "use max, cogroup, elastic(F) or tasks(L); `coset schemes` knows records"
        raise Refused.of(Kind.SCHEME, what, "scheme", then, scheme=scheme)
    if scheme == MAX:
        return Assignment(str(scheme), assign_whole(readings, tasks))
    _check_size(readings, tasks)
    return Assignment(str(scheme), assign_owned(readings, tasks, [(task,) for task in range(tasks)]))


def stage_tasks(
    inputs: Sequence[Input], cosets: int, owners: Sequence[tuple[int, ...]] | None, *, gathered: bool
) -> tuple[Task, ...]:
    """The tasks of a stage: those that own the residues `owners`. If that is None, whole partitions are dealt to
    `cosets` tasks, or to one each if there are fewer.

    A stream may want a task of its own for its records without a key; then that takes those of exchanges, results
    and state too. Not where all records are `gathered` in one task.

    Raises Refused for a mapping that is too large to be meant.
    """
    readings = [Reading.of(read) for read in inputs]
    own = {read.name for read in inputs if isinstance(read, StreamInput) and read.null_keys == NullKeys.OWN_TASK}
    if not own or gathered:
        return assign_whole(readings, cosets) if owners is None else assign_owned(readings, cosets, owners)
    keyless = {
        read.name: tuple(read.numbers) if isinstance(read, StreamInput) else (0,)
        for read, reading in zip(inputs, readings, strict=True)
        if (read.name in own if isinstance(read, StreamInput) else reading.keyed)
    }
    tasks = (
        assign_whole(readings, cosets, keyless) if owners is None else assign_owned(readings, cosets, owners, keyless)
    )
    return (*tasks, Task(len(tasks), keyless, null_keys=True, keyless=keyless))


def assign_whole(readings: Sequence[Reading], cosets: int, elsewhere: Collection[str] = ()) -> tuple[Task, ...]:
    """Deal whole partitions to `cosets` tasks in turn, inputs in the order given, then by partition number. With as
    many tasks as partitions or more, each partition has one of its own.

    Records without a key of the inputs `elsewhere` are another task's.

    >>> readings = [Reading("views", 2), Reading("clicks", 3, only=(2,))]
    >>> [task.reads for task in assign_whole(readings, 3)]
    [{'views': (0,)}, {'views': (1,)}, {'clicks': (2,)}]
    >>> [task.reads for task in assign_whole(readings, 2)]
    [{'views': (0,), 'clicks': (2,)}, {'views': (1,)}]

    Raises Refused for a mapping that is too large to be meant.
    """
    if (partitions := sum(len(reading.numbers) for reading in readings)) > MOST_READS:
        raise Refused(_too_large(partitions, partitions))
    dealt: list[dict[str, tuple[int, ...]]] = [{} for _ in range(min(cosets, partitions))]
    first = 0
    for reading in readings:
        for turn in range(min(len(reading.numbers), len(dealt))):
            dealt[(first + turn) % len(dealt)][reading.name] = tuple(reading.numbers[turn :: len(dealt)])
        first += len(reading.numbers)
    return tuple(
        Task(task, reads, keyless={name: numbers for name, numbers in reads.items() if name not in elsewhere})
        for task, reads in enumerate(dealt)
    )


def assign_owned(
    readings: Sequence[Reading], cosets: int, owners: Sequence[tuple[int, ...]], elsewhere: Collection[str] = ()
) -> tuple[Task, ...]:
    """Tasks that own the residues `owners`, one tuple for each task, modulo `cosets`: the coset rule.

    Partition p of n and residue r share keys if and only if p ≡ r modulo gcd(n, cosets). Records of p without a key
    are those of the task that owns the residue p mod gcd(n, cosets); of the inputs `elsewhere` they are another's.

    >>> for task in assign_owned([Reading("views", 4), Reading("clicks", 2)], 4, [(0, 2), (1,), (3,)]):
    ...     print(task.reads, task.filters)
    {'views': (0, 2), 'clicks': (0,)} {}
    {'views': (1,), 'clicks': (1,)} {'clicks': Residues(modulus=4, residues=(1,))}
    {'views': (3,), 'clicks': (1,)} {'clicks': Residues(modulus=4, residues=(3,))}

    Raises Refused for a mapping that is too large to be meant.
    """
    _check_size(readings, cosets)
    dealing = [_Dealing(reading, cosets, len(owners)) for reading in readings]
    counting = [deal for deal in dealing if deal.reading.name not in elsewhere]
    tasks = []
    for number, owned in enumerate(owners):
        residues = Residues(cosets, owned)
        reads = {deal.reading.name: numbers for deal in dealing if (numbers := deal.reads(number, owned))}
        filters = {deal.reading.name: residues for deal in dealing if deal.shares(owned)}
        keyless = {deal.reading.name: numbers for deal in counting if (numbers := deal.keyless(number, owned))}
        tasks.append(Task(number, reads, filters, owns=owned, keyless=keyless))
    return tuple(tasks)


class _Dealing:
    """One input under the coset rule. Its partitions fall into classes, modulo gcd(partitions, cosets)."""

    def __init__(self, reading: Reading, cosets: int, tasks: int) -> None:
        self.reading = reading
        self._step = reading.shared(cosets) if reading.keyed else tasks
        # How many cosets have keys in a partition.
        self._mixed = cosets // self._step if reading.keyed else 1
        # Tasks with the same partitions share one tuple: there may be millions.
        numbers, known = range(reading.partitions), None if reading.only is None else set(reading.only)
        self._classes = [
            tuple(number for number in numbers[first :: self._step] if known is None or number in known)
            for first in range(self._step)
        ]

    def reads(self, task: int, owned: tuple[int, ...]) -> tuple[int, ...]:
        """The partitions that a task reads, ascending."""
        if not self.reading.keyed:
            return self._classes[task]
        if len(owned) == 1:
            return self._classes[owned[0] % self._step]
        return self._numbers({residue % self._step for residue in owned})

    def keyless(self, task: int, owned: tuple[int, ...]) -> tuple[int, ...]:
        """Those of them whose records without a key are the task's."""
        if not self.reading.keyed:
            return self._classes[task]
        first = [residue for residue in owned if residue < self._step]
        if not first:
            return ()
        return self._classes[first[0]] if len(first) == 1 else self._numbers(first)

    def shares(self, owned: tuple[int, ...]) -> bool:
        """Whether the partitions that hold these residues hold others as well."""
        if self._mixed == 1:
            return False
        if len(owned) == 1:
            return bool(self._classes[owned[0] % self._step])
        held = Counter(residue % self._step for residue in owned)
        return any(count < self._mixed and self._classes[residue] for residue, count in held.items())

    def _numbers(self, classes: Collection[int]) -> tuple[int, ...]:
        return tuple(sorted(number for residue in classes for number in self._classes[residue]))


def _check(streams: Sequence[tuple[str, int]]) -> None:
    findings = []
    if not streams:
        findings.append(Finding.of(Kind.ARGUMENT, "no streams to assign", "streams", "name at least one, as views=8"))
    names = Counter(name for name, _ in streams)
    for name in sorted(name for name, count in names.items() if count > 1):
        what = f"stream {name!r} is named twice"
        findings.append(Finding.of(Kind.ARGUMENT, what, name, "name each stream once", name=name))
    for name, count in streams:
        with noting(findings):
            check_name(name, "stream")
        if count < 1:
            what = f"stream {name!r} has {count} partitions"
            findings.append(Finding.of(Kind.ARGUMENT, what, name, "a stream has at least 1", name=name, count=count))
    refuse(findings)


def _check_size(readings: Sequence[Reading], cosets: int) -> None:
    # Each input has lcm(n, L) pairs of a partition and a coset that share keys, a scattered one n × L.
    reads = sum(
        reading.partitions * cosets // reading.shared(cosets) if reading.keyed else reading.partitions
        for reading in readings
    )
    if reads > MOST_READS:
        raise Refused(_too_large(cosets, reads))


def _too_large(tasks: int, reads: int) -> Finding:
    divides = "use a number of tasks that divides, or is a multiple of, the partition counts"
    what = f"{tasks:,} tasks would read {reads:,} stream partitions, more than {MOST_READS:,}"
    then = divides if tasks <= MOST_READS else f"use at most {MOST_READS:,} tasks"
    return Finding.of(Kind.SCHEME, what, "scheme", then, tasks=tasks, reads=reads)


# More tasks than this are never useful. Airflow's DAG, which is laid out before there is a plan, relies on the limit.
MOST_RANGES = 10_000


def ranges(start: int, end: int, most: int) -> tuple[Span, ...]:
    """The offsets [start, end) in as few ranges as have `most` offsets each at most, as even as can be.

    >>> [str(span) for span in ranges(100, 110, 4)], [str(span) for span in ranges(7, 7, 4)]
    (['[100,103)', '[103,106)', '[106,110)'], ['[7,7)'])
    """
    return evenly(start, end, how_many(start, end, most))


def evenly(start: int, end: int, count: int) -> tuple[Span, ...]:
    """The offsets [start, end) in so many ranges, as even as can be.

    >>> [str(span) for span in evenly(100, 110, 3)]
    ['[100,103)', '[103,106)', '[106,110)']
    """
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    return tuple(map(Span, bounds, bounds[1:]))


def how_many(start: int, end: int, most: int) -> int:
    """Into how many ranges `ranges` assigns: one, if there is nothing."""
    return max(1, -(-(end - start) // most))


def assign_ranges(
    tasks: Sequence[Task], streams: Mapping[str, Sequence[PlannedPartition]], most: int
) -> tuple[Task, ...]:
    """Several tasks in place of each that reads more than `most` records of a stream partition.

    `streams` has the partitions of each. The tasks read one partition each, and keep their order: a partition's ranges
    follow one another.
    """
    assigned = [piece for task in tasks for piece in _pieces(task, streams, most)]
    return tuple(replace(task, task=number) for number, task in enumerate(assigned))


def assign_shares_of_keys(
    tasks: Sequence[Task], why: OwnTasks, streams: Mapping[str, Sequence[PlannedPartition]]
) -> tuple[Task, ...]:
    """Several tasks in place of each that owns a hot key which is to be shared.

    Each takes a range of the key's partition of one stream, and all that there is of the key elsewhere. The tasks keep
    their order.
    """
    keys = dict(enumerate(why.keys, why.of.cosets))
    assigned = [share for task in tasks for share in _shares(task, keys.get(task.task), streams)]
    return tuple(replace(task, task=number) for number, task in enumerate(assigned))


def _shares(task: Task, own: OwnTask | None, streams: Mapping[str, Sequence[PlannedPartition]]) -> Iterator[Task]:
    numbers = task.reads.get(own.ranged, ()) if own and own.tasks > 1 and own.ranged in streams else ()
    if own is None or len(numbers) != 1:
        yield task
        return
    planned = streams[own.ranged][numbers[0]]
    spans = evenly(planned.start, planned.end, own.tasks)
    yield from (replace(task, offsets=span, ranged=own.ranged) for span in spans)


def _pieces(task: Task, streams: Mapping[str, Sequence[PlannedPartition]], most: int) -> Iterator[Task]:
    ((name, (number,)),) = task.reads.items()
    if name not in streams:
        yield task
        return
    planned = streams[name][number]
    spans = ranges(planned.start, planned.end, most)
    yield from (replace(task, offsets=span) for span in spans) if len(spans) > 1 else (task,)
