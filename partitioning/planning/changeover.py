"""Changeovers: where the records of a stream lie after its partition count changed, or while its keys have several ids
of a registry's schemas.

A stream had n partitions and now has m. The producer put a record into partition p by `h(key) mod n` or by `h(key) mod
m`, and nothing says which. In both cases `h(key) ≡ p (mod gcd(n, m))`: the stream is still placed, as one of gcd(n, m)
partitions. The partitions that only the new count has are placed by the new count.

By several hashes, which is which is told of each record. Those that lie by the newest stay, the others move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from partitioning.cosets import Reading, assign_whole, stage_tasks
from partitioning.model.placement import OPAQUE, HashName, KeyHash, Placement, each_of, earlier_of
from partitioning.model.plan import Exchange, Stage
from partitioning.model.read_ends import Ends
from partitioning.model.reasons import (
    BeforeMoving,
    CountChange,
    CountChanged,
    ExchangeReason,
    PlacedOtherwise,
    Unplaced,
)
from partitioning.model.schemes import MAX
from partitioning.model.stage_inputs import StreamInput
from partitioning.model.streams import Stream
from partitioning.values import Value, replace


class Changeover(Value, frozen=True):
    """A stream's partition count in the last batch that read it, and now, and the hashes by any of which it lies.

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
    def counts(self) -> tuple[CountChange, ...]:
        """The change of the count, if it did."""
        return (self.change,) if self.change.before != self.change.now else ()

    @property
    def hashes(self) -> bool:
        """Whether its records lie by several hashes."""
        return len(each_of(self.hash)) > 1

    @property
    def stays(self) -> bool:
        """Whether the records stay that lie by the newest of several hashes: where only those changed."""
        return self.hashes and not self.counts

    @property
    def new(self) -> tuple[int, ...]:
        """The partitions that hold records of the new count only, by one hash."""
        return () if self.hashes else tuple(range(self.change.before, self.change.now))

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
        if self.hashes:
            return cosets == 1
        return self.shared % cosets == 0 or (not keeps and self.change.now % cosets == 0)


def changeovers(streams: Sequence[Stream], ends: Ends) -> Mapping[str, Changeover]:
    """The streams with another partition count than in the batch that read them last, or with several hashes."""
    before = {read.name: read.declared.partitions for read in ends.streams}
    all_streams = (
        Changeover(CountChange(stream.name, before.get(stream.name, stream.partitions), stream.partitions), stream.hash)
        for stream in streams
    )
    return {over.stream: over for over in all_streams if over.counts or over.hashes}


def moved(over: Changeover, stream: Stream, placement: Placement, wanted_by: tuple[str, ...]) -> tuple[Stage, Exchange]:
    """The exchange that brings the mixed partitions of a stream to a placement of its key, or its records by older
    hashes, and the stage before it, which only reads them."""
    only = over.change.mixed if over.new else None
    lies = replace(placement, hash=earlier_of(over.hash) if over.stays else over.hash, partitions=over.shared)
    read = StreamInput(stream.name, lies, stream.partitions, stream.null_keys, only)
    tasks = len(read.numbers)
    why: ExchangeReason = CountChanged(over.change)
    if over.hashes:
        otherwise = PlacedOtherwise(stream.name, KeyHash(stream.key_format, lies.hash))
        why = Unplaced((), (otherwise,), None, (stream.name,) if over.stays else ())
    stage = Stage(
        f"{stream.name}.changed",
        (read,),
        (),
        (),
        MAX,
        tasks,
        BeforeMoving(),
        given=False,
        # Records without a key stay.
        tasks=assign_whole([Reading.of(read)], tasks, [stream.name])
        if over.stays
        else stage_tasks([read], tasks, None, gathered=False),
        changes=over.counts,
    )
    return stage, Exchange(over.exchange, stream.name, stage.name, placement, wanted_by, why, only)
