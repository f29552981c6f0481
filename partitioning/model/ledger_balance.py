"""A balance of the ledger: what all published batches before a hundred add up to, so that nobody reads them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType, field

from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.values import Document, Value, replace


class LeftOut(Value, frozen=True):
    """Offsets that a published batch left out."""

    offsets: OffsetRange
    batch: int


class LedgerBalance(Document, frozen=True):
    """What all published batches with numbers less than `before` add up to, oldest first.

    `skipped` are offsets before those that a batch was asked to start at, `lost` those whose loss somebody accepted.
    `written` names the batch that wrote each result table last. `doubled` are streams of which several files had the
    same records. Backfills do not change it.
    """

    FORMAT: ClassVar[str] = "coset.balance/1"

    pipeline: str
    before: int = 0
    skipped: tuple[LeftOut, ...] = ()
    lost: tuple[LeftOut, ...] = ()
    written: dict[str, int] = field(default_factory=dict)
    doubled: tuple[str, ...] | UnsetType = UNSET

    def then(self, plan: Plan) -> LedgerBalance:
        """This, and the next published batch."""
        return replace(
            self,
            before=plan.batch + 1,
            skipped=(*self.skipped, *(LeftOut(offsets, plan.batch) for offsets in skipped_by(plan))),
            lost=(*self.lost, *(LeftOut(offsets, plan.batch) for offsets in plan.lost)),
            written=self.written | dict.fromkeys((write.declared.table for write in plan.writes()), plan.batch),
            doubled=tuple(sorted({*(self.doubled or ()), *doubled_by(plan)})) or UNSET,
        )


def skipped_by(plan: Plan) -> Iterator[OffsetRange]:
    """The offsets before those that a batch was asked to start at."""
    for stream in plan.streams:
        for partition in stream.partitions:
            start = plan.starts.get(f"{stream.name}-{partition.partition}")
            if start is not None and partition.beginning < start:
                yield OffsetRange(StreamPartition(stream.name, partition.partition), partition.beginning, start)


def doubled_by(plan: Plan) -> Iterator[str]:
    """The streams of which a batch found the same records in several files."""
    return (stream.name for stream in plan.streams if any(planned.doubles for planned in stream.partitions))
