"""Reasons: why a plan is as it is, as codes with their figures. Sentences are made where they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from partitioning.model.placement import KeyHash
from partitioning.values import Value


class OnePerPartition(Value, frozen=True, tag="one per partition", tag_field="reason"):
    """One task for each partition that the stage reads."""


class InRanges(Value, frozen=True, tag="in ranges", tag_field="reason"):
    """Each of the `partitions` that the stage reads has tasks of at most `records` records each."""

    partitions: int
    records: int


class AllTogether(Value, frozen=True, tag="all together", tag_field="reason"):
    """One task, because these `steps` need all records together."""

    steps: tuple[str, ...]


class AsAsked(Value, frozen=True, tag="as asked", tag_field="reason"):
    """The scheme names this number of `cosets`."""

    cosets: int


class Dealt(Value, frozen=True, tag="dealt", tag_field="reason"):
    """No keys have to be kept together, so that many `partitions` are dealt whole to fewer tasks: `cosets`."""

    partitions: int
    cosets: int


class GcdOf(Value, frozen=True, tag="gcd", tag_field="reason"):
    """L comes from the gcd of these partition counts. Without counts, L is the greatest of the stages that feed this
    one.

    The factor of an earlier stage's scheme does not count. The result is `cosets`.
    """

    counts: tuple[int, ...]
    cosets: int


class OwnTask(Value, frozen=True, omit_defaults=True):
    """A task for one `key` and its `residue`. The key had `percent` of its stage's records in the last batch.

    If several `tasks` share it, each takes a range of the offsets of the input `ranged`, and all of the residue in the
    others.
    """

    key: str
    residue: int
    percent: int
    ranged: str = ""
    tasks: int = 1


class OwnTasks(Value, frozen=True, tag="own tasks", tag_field="reason", omit_defaults=True):
    """As many tasks as `of` says, for all keys but a few that make a task heavy; then those of each of these `keys`.

    Keys are not split, although that is asked for, if a step or stream keeps their records `together`.
    """

    of: AsAsked | GcdOf
    keys: tuple[OwnTask, ...]
    together: str = ""

    @property
    def numbers(self) -> Iterator[range]:
        """The numbers of the tasks of each key.

        >>> why = OwnTasks(AsAsked(2), (OwnTask("bot", 3, 40, "views", 3), OwnTask("ann", 4, 20)))
        >>> list(why.numbers), list(why.shares)
        ([range(2, 5), range(5, 6)], [range(2, 5)])
        """
        first = self.of.cosets
        for own in self.keys:
            yield range(first, first := first + own.tasks)

    @property
    def shares(self) -> Iterator[range]:
        """The numbers of the tasks of each key that several share."""
        return (numbers for numbers in self.numbers if len(numbers) > 1)

    def owners(self, cosets: int) -> tuple[tuple[int, ...], ...]:
        """The residues, modulo a multiple `cosets` of the cosets without these keys, that each task owns. Tasks that
        share a key are one.

        >>> OwnTasks(AsAsked(2), (OwnTask("bot", 3, 40),)).owners(8)
        ((0, 2, 4, 6), (1, 5, 7), (3,))
        """
        apart = [own.residue for own in self.keys]
        others = (range(first, cosets, self.of.cosets) for first in range(self.of.cosets))
        return (
            *(tuple(residue for residue in owned if residue not in apart) for owned in others),
            *((residue,) for residue in apart),
        )


class BeforeMoving(Value, frozen=True, tag="before moving", tag_field="reason"):
    """Each partition with records of both partition counts, or of several hashes, has a task, which only reads what
    must move."""


class Unifying(Value, frozen=True, tag="unifying", tag_field="reason"):
    """The tasks are the unifiers of one of `levels` levels: `unifiers` for each partition. They reduce the inputs of
    the step `combine`."""

    combine: str
    level: int
    levels: int
    unifiers: int


class SplitPartition(Value, frozen=True):
    """A stream partition that several `tasks` read: `percent` of its stage's records have one `key`, by the last batch.

    A private key is masked.
    """

    partition: int
    tasks: int
    key: str
    percent: int


class HotRanges(Value, frozen=True, tag="hot ranges", tag_field="reason"):
    """The tasks read ranges of the partitions of the `stage` that hold hot keys, of at most `records` records each.

    They combine what they read of a key. The rows go to the task of the stage that owns the key.
    """

    stage: str
    records: int
    partitions: tuple[SplitPartition, ...]


TaskCountReason = (
    OnePerPartition | InRanges | AllTogether | AsAsked | Dealt | GcdOf | OwnTasks | BeforeMoving | Unifying | HotRanges
)


class CountChange(Value, frozen=True, order=True):
    """The partition count of a stream changed since the last batch that read it.

    >>> change = CountChange("views", 4, 6)
    >>> print(change, change.listed, sep="; ")
    views changed from 4 to 6 partitions; partitions 0 to 3
    """

    stream: str
    before: int
    now: int

    def __str__(self) -> str:
        return f"{self.stream} changed from {self.before} to {self.now} partitions"

    @property
    def mixed(self) -> tuple[int, ...]:
        """The partitions that hold records of both counts."""
        return tuple(range(min(self.before, self.now)))

    @property
    def listed(self) -> str:
        """These partitions, for people."""
        last = len(self.mixed) - 1
        return f"partitions 0 to {last}" if last else "partition 0"


class PlacedOtherwise(Value, frozen=True):
    """The records of a stream lie by another hash than a step needs."""

    stream: str
    key_hash: KeyHash


class MovesAlong(Value, frozen=True):
    """Records of these streams and steps move although they are placed, because fewer records are left `after` a step.
    Gives how many move, and how many would move `without` them; None if unknown."""

    names: tuple[str, ...]
    after: str
    left: int | None
    without: int | None


class Unplaced(Value, frozen=True, tag="unplaced", tag_field="reason"):
    """Records do not lie where steps need them: the steps `dirty` changed their keys, or they are placed `otherwise`.
    Inputs in `staying` need not move, or not those of their records that lie by the newest of their hashes.
    """

    dirty: tuple[str, ...]
    otherwise: tuple[PlacedOtherwise, ...]
    along: MovesAlong | None
    staying: tuple[str, ...]

    @property
    def of_part(self) -> bool:
        """Whether some records of a stream move, and others stay."""
        return any(placed.stream in self.staying for placed in self.otherwise)


class AskedFor(Value, frozen=True, tag="asked for", tag_field="reason"):
    """A step asks for the exchange, perhaps with its own partition count."""

    partitions: int | None


class CountChanged(Value, frozen=True, tag="count changed", tag_field="reason"):
    """A partition count changed, so records lie by either count."""

    change: CountChange


ExchangeReason = Unplaced | AskedFor | CountChanged | HotRanges


class AtLocation(Value, frozen=True, tag="at it", tag_field="now"):
    """The task stays where it ran last: its `group` is at that location."""

    location: str
    group: int


class LocationFull(Value, frozen=True, tag="full", tag_field="now"):
    """The groups at the task's last location are full."""

    location: str


class LocationGone(Value, frozen=True, tag="gone", tag_field="now"):
    """No group is at the task's last location."""

    location: str


class LocationUnknown(Value, frozen=True, tag="unknown", tag_field="now"):
    """The task's last location is unknown."""


LastLocation = AtLocation | LocationFull | LocationGone | LocationUnknown


class Unit(StrEnum):
    """The unit that task groups are balanced by."""

    BYTES = "bytes"
    RECORDS = "records"
    TASKS = "tasks"


class Bounds(Value, frozen=True):
    """What a task group may hold: `least` to `most`, both included. The mean is rounded down."""

    unit: Unit
    least: int
    mean: int
    most: int


class OtherWave(Value, frozen=True, tag="other wave", tag_field="reason"):
    """The task's stage was in another wave; each wave has its own groups."""


class GroupLeft(Value, frozen=True, tag="group left", tag_field="reason"):
    """The task's group no longer exists. `last` says what runs where it ran."""

    group: int
    last: LastLocation


class GroupElsewhere(Value, frozen=True, tag="group elsewhere", tag_field="reason"):
    """The task's group moved to another `location`; another group runs where the task ran."""

    group: int
    location: str
    last: AtLocation | LocationFull


class HeldTooMuch(Value, frozen=True, tag="held too much", tag_field="reason"):
    """The task's group would exceed its bound, by this much, if all its tasks had stayed."""

    group: int
    held: int
    bounds: Bounds


class GroupJoined(Value, frozen=True, tag="group joined", tag_field="reason"):
    """The task's new group did not exist before."""

    group: int


class HeldTooLittle(Value, frozen=True, tag="held too little", tag_field="reason"):
    """The task's new group would fall below its bound, at this much, without it."""

    group: int
    held: int
    bounds: Bounds


class MakesRoom(Value, frozen=True, tag="makes room", tag_field="reason"):
    """The task moves so that all groups stay within the bounds."""

    bounds: Bounds


class PutBy(Value, frozen=True, tag="put by", tag_field="reason"):
    """The grouper gave no reason."""

    grouper: str


class Said(Value, frozen=True, tag="said", tag_field="reason"):
    """The reason that a user's own grouper gives."""

    words: str


class GroupCount(Value, frozen=True, tag="group count", tag_field="reason"):
    """Only the numbers of task groups are known, before and now."""

    before: int
    now: int


MoveReason = (
    OtherWave
    | GroupLeft
    | GroupElsewhere
    | HeldTooMuch
    | GroupJoined
    | HeldTooLittle
    | MakesRoom
    | PutBy
    | Said
    | GroupCount
)
