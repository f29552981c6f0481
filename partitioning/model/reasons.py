"""Reasons: why a plan is as it is, as codes with their figures. Sentences are made where they are shown."""

from __future__ import annotations

from enum import StrEnum

from partitioning.model.placement import KeyHash
from partitioning.values import Value


class OnePerPartition(Value, frozen=True, tag="one per partition", tag_field="reason"):
    """Each partition that the stage reads has a task."""


class InRanges(Value, frozen=True, tag="in ranges", tag_field="reason"):
    """Each of so many `partitions` that the stage reads has tasks of at most so many of its `records` each."""

    partitions: int
    records: int


class AllTogether(Value, frozen=True, tag="all together", tag_field="reason"):
    """There is one task, as these `steps` need all records together."""

    steps: tuple[str, ...]


class AsAsked(Value, frozen=True, tag="as asked", tag_field="reason"):
    """The scheme says so many `cosets`."""

    cosets: int


class GcdOf(Value, frozen=True, tag="gcd", tag_field="reason"):
    """The scheme goes by the gcd of these partition counts; without any, by the most cosets of a stage that feeds it.

    The factor of an earlier stage's scheme is in neither. That makes so many `cosets`.
    """

    counts: tuple[int, ...]
    cosets: int


class BeforeMoving(Value, frozen=True, tag="before moving", tag_field="reason"):
    """Each partition that holds records of both counts of a stream has a task, which only reads what is to move."""


class Unifying(Value, frozen=True, tag="unifying", tag_field="reason"):
    """The tasks are the unifiers of a level, of so many `levels`: `unifiers` for each partition, which combine what
    the step `combine` would otherwise have to take at once."""

    combine: str
    level: int
    levels: int
    unifiers: int


TaskCountReason = OnePerPartition | InRanges | AllTogether | AsAsked | GcdOf | BeforeMoving | Unifying


class CountChange(Value, frozen=True, order=True):
    """A stream had another partition count in the batch that read it last.

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
        """These partitions in words."""
        last = len(self.mixed) - 1
        return f"partitions 0 to {last}" if last else "partition 0"


class PlacedOtherwise(Value, frozen=True):
    """The records of a stream lie by another hash than they have to."""

    stream: str
    key_hash: KeyHash


class MovesAlong(Value, frozen=True):
    """Placed records of these streams and steps move too, as fewer are left `after` a step: so many, and how many
    would move `without` them; None where that is not known."""

    names: tuple[str, ...]
    after: str
    left: int | None
    without: int | None


class Unplaced(Value, frozen=True, tag="unplaced", tag_field="reason"):
    """Records do not lie where steps need them: the steps `dirty` changed their keys, or they are placed `otherwise`.

    What is `staying` lies where it has to.
    """

    dirty: tuple[str, ...]
    otherwise: tuple[PlacedOtherwise, ...]
    along: MovesAlong | None
    staying: tuple[str, ...]


class AskedFor(Value, frozen=True, tag="asked for", tag_field="reason"):
    """A step asks for it, with a partition count of its own or without."""

    partitions: int | None


class CountChanged(Value, frozen=True, tag="count changed", tag_field="reason"):
    """A partition count changed, so that records lie by either count."""

    change: CountChange


ExchangeReason = Unplaced | AskedFor | CountChanged


class AtLocation(Value, frozen=True, tag="at it", tag_field="now"):
    """The task runs where it ran last: `group`, its group now, is at that location."""

    location: str
    group: int


class LocationFull(Value, frozen=True, tag="full", tag_field="now"):
    """The groups at the location where the task ran last have no room for it."""

    location: str


class LocationGone(Value, frozen=True, tag="gone", tag_field="now"):
    """No group is at the location where the task ran last."""

    location: str


class LocationUnknown(Value, frozen=True, tag="unknown", tag_field="now"):
    """Nobody knows where the task ran last."""


LastLocation = AtLocation | LocationFull | LocationGone | LocationUnknown


class Unit(StrEnum):
    """What task groups are balanced by."""

    BYTES = "bytes"
    RECORDS = "records"
    TASKS = "tasks"


class Bounds(Value, frozen=True):
    """What a task group may hold: from `least` to `most`, both included. The mean is rounded down."""

    unit: Unit
    least: int
    mean: int
    most: int


class OtherWave(Value, frozen=True, tag="other wave", tag_field="reason"):
    """The task's stage was in another wave, and each wave has groups of its own."""


class GroupLeft(Value, frozen=True, tag="group left", tag_field="reason"):
    """The task's group is no longer there; `last` says what is where it ran."""

    group: int
    last: LastLocation


class GroupElsewhere(Value, frozen=True, tag="group elsewhere", tag_field="reason"):
    """The task's group is at another `location` now, and some group is where the task ran."""

    group: int
    location: str
    last: AtLocation | LocationFull


class HeldTooMuch(Value, frozen=True, tag="held too much", tag_field="reason"):
    """The task's group would hold more than it may if all its tasks had stayed: so much."""

    group: int
    held: int
    bounds: Bounds


class GroupJoined(Value, frozen=True, tag="group joined", tag_field="reason"):
    """The task's new group was not there before."""

    group: int


class HeldTooLittle(Value, frozen=True, tag="held too little", tag_field="reason"):
    """The task's new group would hold less than it has to if no task had come: so much."""

    group: int
    held: int
    bounds: Bounds


class MakesRoom(Value, frozen=True, tag="makes room", tag_field="reason"):
    """The task gives way to others, so that all groups keep within the bounds."""

    bounds: Bounds


class PutBy(Value, frozen=True, tag="put by", tag_field="reason"):
    """The grouper put it there and did not say why."""

    grouper: str


class Said(Value, frozen=True, tag="said", tag_field="reason"):
    """What a grouper of a user's own says about it."""

    words: str


class GroupCount(Value, frozen=True, tag="group count", tag_field="reason"):
    """Nothing more is known than how many task groups there were, and how many there are."""

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
