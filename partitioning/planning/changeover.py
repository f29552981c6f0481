"""Changeovers: what becomes of the records of a stream whose partition count is another than when it was last read.

A stream had n partitions and has m. A record that lies in partition p was put there by `h(key) mod n` or by
`h(key) mod m`, and nothing says by which. Either way `h(key) ≡ p (mod gcd(n, m))`: the stream is still placed,
as one of gcd(n, m) partitions. The partitions that only the new count has are placed by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from partitioning.cosets.assignment import stage_tasks
from partitioning.model.placement import OPAQUE, HashName, Placement
from partitioning.model.plan import Exchange, Stage, StreamInput
from partitioning.model.read_ends import Ends
from partitioning.model.reasons import BeforeMoving, CountChange, CountChanged
from partitioning.model.schemes import MAX
from partitioning.model.streams import Stream
from partitioning.values import Value, replace


class Changeover(Value, frozen=True):
    """A stream's partition count in the last batch that read it, and now.

    Streams that grew from 2 to 8 and from 4 to 6 partitions:

    >>> [Changeover(CountChange("views", *counts), "murmur2").shared for counts in ((2, 8), (4, 6))]
    [2, 2]
    """

    change: CountChange
    hash: HashName

    @property
    def stream(self) -> str:
        return self.change.stream

    @property
    def shared(self) -> int:
        """The partition count by which all its records are placed."""
        return gcd(self.change.before, self.change.now)

    @property
    def new(self) -> tuple[int, ...]:
        """The partitions that hold records of the new count only."""
        return tuple(range(self.change.before, self.change.now))

    @property
    def count(self) -> int:
        """The count by which `cogroup` and `elastic` go in this batch: that of a factor, so that nothing moves.

        If neither count is a multiple of the other, too few tasks would be left, and records are moved instead.
        Records whose hash is not known cannot be.
        """
        factor = self.shared == min(self.change.before, self.change.now)
        return self.shared if factor or self.hash == OPAQUE else self.change.now

    @property
    def exchange(self) -> str:
        """The name of the exchange through which the mixed partitions move."""
        return f"{self.stream}.changed.exchange"

    def lies(self, cosets: int, *, keeps: bool) -> bool:
        """Whether a stage of so many cosets, that `keeps` equal keys together or not, can read all where it lies."""
        return self.shared % cosets == 0 or (not keeps and self.change.now % cosets == 0)


def changeovers(streams: Sequence[Stream], ends: Ends) -> Mapping[str, Changeover]:
    """The streams whose partition count is another than in the batch that read them last."""
    before = {read.name: read.declared.partitions for read in ends.streams}
    return {
        stream.name: Changeover(CountChange(stream.name, before[stream.name], stream.partitions), stream.hash)
        for stream in streams
        if before.get(stream.name, stream.partitions) != stream.partitions
    }


def moved(over: Changeover, stream: Stream, placement: Placement, wanted_by: tuple[str, ...]) -> tuple[Stage, Exchange]:
    """The exchange that brings the mixed partitions of a stream to a placement of its key, and the stage before it,
    which only reads them."""
    only = over.change.mixed if over.new else None
    read = StreamInput(
        stream.name, replace(placement, partitions=over.shared), stream.partitions, stream.null_keys, only
    )
    stage = Stage(
        f"{stream.name}.changed",
        (read,),
        (),
        (),
        MAX,
        len(over.change.mixed),
        BeforeMoving(),
        given=False,
        tasks=stage_tasks([read], len(over.change.mixed), None, gathered=False),
        changes=(over.change,),
    )
    why = CountChanged(over.change)
    return stage, Exchange(over.exchange, stream.name, stage.name, placement, wanted_by, why, only)
