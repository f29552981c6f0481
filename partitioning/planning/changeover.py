"""Changeovers: what becomes of the records of a stream whose partition count is another than in the last batch.

A stream had n partitions and has m. A record that lies in partition p was put there by `h(key) mod n` or by
`h(key) mod m`, and nothing says by which. Either way `h(key) ≡ p (mod gcd(n, m))`: the stream is still placed,
as one of gcd(n, m) partitions. The partitions that only the new count has are placed by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from partitioning.cosets.assignment import Reading, assign_each
from partitioning.model.placement import OPAQUE, Placement
from partitioning.model.plan import STREAM, Exchange, Input, Plan, Stage
from partitioning.model.schemes import MAX
from partitioning.model.streams import Stream
from partitioning.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Change:
    """A stream's partition count in the last published batch, and now.

    Streams that grew from 2 to 8 and from 4 to 6 partitions:

    >>> Change("views", "murmur2", 2, 8).shared, Change("views", "murmur2", 4, 6).shared
    (2, 2)
    """

    stream: str
    hash: str
    before: int
    now: int

    @property
    def shared(self) -> int:
        """The partition count by which all its records are placed."""
        return gcd(self.before, self.now)

    @property
    def mixed(self) -> tuple[int, ...]:
        """The partitions that hold records of both counts."""
        return tuple(range(min(self.before, self.now)))

    @property
    def new(self) -> tuple[int, ...]:
        """The partitions that hold records of the new count only."""
        return tuple(range(self.before, self.now))

    @property
    def count(self) -> int:
        """The count by which `cogroup` and `elastic` go in this batch: that of a factor, so that nothing moves.

        If neither count is a multiple of the other, too few tasks would be left, and records are moved instead.
        Records whose hash is not known cannot be.
        """
        factor = self.shared == min(self.before, self.now)
        return self.shared if factor or self.hash == OPAQUE else self.now

    @property
    def exchange(self) -> str:
        """The name of the exchange through which the mixed partitions move."""
        return f"{self.stream}.changed.exchange"

    def lies(self, cosets: int, *, keeps: bool) -> bool:
        """Whether a stage of so many cosets, that `keeps` equal keys together or not, can read all where it lies."""
        return self.shared % cosets == 0 or (not keeps and self.now % cosets == 0)

    @property
    def listed(self) -> str:
        """The mixed partitions in words."""
        last = len(self.mixed) - 1
        return f"partitions 0 to {last}" if last else "partition 0"

    def __str__(self) -> str:
        return f"{self.stream} changed from {self.before} to {self.now} partitions"


def changes(streams: Sequence[Stream], published: Plan | None) -> Mapping[str, Change]:
    """The streams whose partition count is another than in the last published plan."""
    before = {each.name: len(each.partitions) for each in published.streams} if published else {}
    return {
        stream.name: Change(stream.name, stream.placement, before[stream.name], stream.partitions)
        for stream in streams
        if before.get(stream.name, stream.partitions) != stream.partitions
    }


def moved(
    change: Change, placement: Placement, wanted_by: tuple[str, ...], *, own_task: bool
) -> tuple[Stage, Exchange]:
    """The exchange that brings the mixed partitions of a stream to a placement of its key, and the stage before it,
    which only reads them; records without a key in their `own_task`, if they have one."""
    only = change.mixed if change.new else None
    tasks = assign_each([Reading(change.stream, change.now, only=only)])
    if own_task:
        tasks += (Task(len(tasks), {change.stream: change.mixed}, null_keys=True),)
    stage = Stage(
        f"{change.stream}.changed",
        (Input(change.stream, STREAM, change.stream, replace(placement, partitions=change.shared), only),),
        (),
        (),
        str(MAX),
        len(change.mixed),
        f"one task per stream partition; {change}, and {change.listed} have records of both counts",
        tasks,
    )
    why = f"{change}: records of {change.listed} lie there by either count"
    return stage, Exchange(change.exchange, change.stream, stage.name, placement, wanted_by, why, only)
