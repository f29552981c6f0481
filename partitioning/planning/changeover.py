"""Changeovers: where the records of a stream lie after its partition count changed.

A stream had n partitions and now has m. The producer put a record into partition p by `h(key) mod n` or by `h(key) mod
m`, and nothing says which. In both cases `h(key) ≡ p (mod gcd(n, m))`: the stream is still placed, as one of gcd(n, m)
partitions. The partitions that only the new count has are placed by the new count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from partitioning.cosets.assignment import stage_tasks
from partitioning.model.placement import OPAQUE, HashName, Placement
from partitioning.model.plan import Exchange, Stage
from partitioning.model.read_ends import Ends
from partitioning.model.reasons import BeforeMoving, CountChange, CountChanged
from partitioning.model.schemes import MAX
from partitioning.model.stage_inputs import StreamInput
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
        """The partition count that places all its records."""
        return gcd(self.change.before, self.change.now)

    @property
    def new(self) -> tuple[int, ...]:
        """The partitions that hold records of the new count only."""
        return tuple(range(self.change.before, self.change.now))

    @property
    def count(self) -> int:
        """The count that `cogroup` and `elastic` use in this batch: the smaller one if it divides the other, so that
        nothing moves.

        If neither count divides the other, the shared count would leave too few tasks, so records move instead. Records
        whose hash is unknown cannot move.
        """
        factor = self.shared == min(self.change.before, self.change.now)
        return self.shared if factor or self.hash == OPAQUE else self.change.now

    @property
    def exchange(self) -> str:
        """The name of the exchange through which the mixed partitions move."""
        return f"{self.stream}.changed.exchange"

    def lies(self, cosets: int, *, keeps: bool) -> bool:
        """Whether a stage of so many cosets can read all records where they lie. `keeps`: it must keep equal keys
        together."""
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
