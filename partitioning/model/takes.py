"""Tasks: the input records that each reads, takes, and leaves to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import UNSET, UnsetType, field

from partitioning.model.offsets import Span
from partitioning.model.streams import NullKeys
from partitioning.values import Value


class Residues(Value, frozen=True, order=True):
    """Keep only the records whose `h(key) mod modulus` is one of `residues`, ascending.

    >>> print(Residues(8, (3,)), Residues(8, (3, 5)), sep="; ")
    h(key) mod 8 = 3; h(key) mod 8 in 3, 5
    """

    modulus: int
    residues: tuple[int, ...]

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.residues))
        return f"h(key) mod {self.modulus} {'=' if len(self.residues) == 1 else 'in'} {listed}"


class Task(Value, frozen=True, repr_omit_defaults=True):
    """The unit of a stage: `reads` maps each input to partition numbers, ascending.

    `owns` are the residues, modulo the stage's cosets, of the task's keys: its own number under the coset rule, none
    where keys are not kept together. `filters` has an entry for each input of which it reads partitions with keys of
    other tasks. `keyless` are the partitions whose records without a key it accounts for. A task for `null_keys` takes
    nothing else. A task with `offsets` reads only these of its one partition; other tasks read the rest. If it shares a
    hot key with others, `ranged` is the input of which it reads that part only. `takes` decides on each record.
    """

    task: int
    reads: Mapping[str, tuple[int, ...]]
    filters: Mapping[str, Residues] = field(default_factory=dict)
    null_keys: bool = False
    owns: tuple[int, ...] = ()
    keyless: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    offsets: Span | UnsetType = UNSET
    ranged: str | UnsetType = UNSET

    @property
    def span(self) -> Span | None:
        """The offsets that it reads of one partition. None if it reads all of the batch."""
        return self.offsets if isinstance(self.offsets, Span) else None

    def span_of(self, read: str) -> Span | None:
        """The offsets that it reads of its partitions of an input. None if it reads all of the batch."""
        return self.span if self.ranged in (UNSET, read) else None


def takes(task: Task, read: str, partition: int, h: int | None, offset: int | None = None) -> bool:
    """Whether a record in a partition of the input `read` is the task's. h is the hash of its key, None without one.

    Without an `offset`, the record is one that the task reads. The stream's `NullKeys` decides what happens to a record
    without a key. Plan checks and tasks both use this rule; `taken` gives it for all keys at once.

    >>> half = Task(1, {"views": (1, 3)}, {"views": Residues(8, (1,))}, owns=(1,), keyless={"views": (1,)})
    >>> takes(half, "views", 3, 9), takes(half, "views", 3, 11), takes(half, "views", 1, None)
    (True, False, True)
    >>> late = Task(4, {"views": (3,)}, keyless={"views": (3,)}, offsets=Span(100, 250))
    >>> takes(late, "views", 3, 9, 100), takes(late, "views", 3, 9, 99), takes(late, "views", 3, None, 250)
    (True, False, False)
    """
    if partition not in task.reads.get(read, ()):
        return False
    span = task.span_of(read)
    if offset is not None and span is not None and not span.start <= offset < span.end:
        return False
    if h is None:
        return partition in task.keyless.get(read, ())
    if task.null_keys:
        return False
    residues = task.filters.get(read)
    return residues is None or h % residues.modulus in residues.residues


def taken(task: Task, read: str, modulus: int, step: int) -> Mapping[int, Sequence[int]]:
    """`takes` for all keys at once: the residues modulo `modulus` that the task takes of the input `read`.

    The result maps partition numbers modulo `step` to residues; `h mod step` says where a key lies. `step` divides
    `modulus`.

    >>> half = Task(1, {"views": (1, 3)}, {"views": Residues(8, (1, 5))}, owns=(1, 5))
    >>> taken(half, "views", 8, 4)
    {1: [1, 5], 3: []}
    >>> [h for h in range(8) if takes(half, "views", h % 4, h)]
    [1, 5]
    """
    if task.null_keys:
        return {}
    places = {partition % step for partition in task.reads.get(read, ())}
    kept = task.filters.get(read)
    if kept is None:
        return {place: range(place, modulus, step) for place in places}
    residues: dict[int, list[int]] = {place: [] for place in places}
    for first in kept.residues:
        for residue in range(first, modulus, kept.modulus):
            if residue % step in residues:
                residues[residue % step].append(residue)
    return residues


class Disposition(StrEnum):
    """What a task does with a record that it reads: `left` is left to another task."""

    TAKEN = "taken"
    DROPPED = "dropped"
    REFUSED = "refused"
    SET_ASIDE = "set aside"
    LEFT = "left"


def disposition(
    task: Task,
    read: str,
    null_keys: NullKeys,
    partition: int,
    h: int | None,
    offset: int | None = None,
    *,
    usable: bool = True,
) -> Disposition:
    """What a task does with a record of a stream, given the stream's rule for records without a key.

    A record that is not `usable` is set aside by the task that would take it; without a key by that which accounts for
    such records.

    >>> half = Task(1, {"views": (1, 3)}, {"views": Residues(8, (1,))}, owns=(1,), keyless={"views": (1,)})
    >>> [str(disposition(half, "views", NullKeys.DROP, *record)) for record in ((1, 9), (1, 13), (1, None), (3, None))]
    ['taken', 'left', 'dropped', 'left']
    >>> print(disposition(half, "views", NullKeys.DROP, 1, None, usable=False))
    set aside
    """
    if not takes(task, read, partition, h, offset):
        return Disposition.LEFT
    if not usable:
        return Disposition.SET_ASIDE
    if h is not None:
        return Disposition.TAKEN
    match null_keys:
        case NullKeys.OWN_TASK:
            return Disposition.TAKEN
        case NullKeys.DROP:
            return Disposition.DROPPED
        case NullKeys.REFUSE:
            return Disposition.REFUSED
