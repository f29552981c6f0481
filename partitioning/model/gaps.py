"""Gaps: offsets of a stream partition at which there is no record, and who explains that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan, PlannedPartition
from partitioning.model.streams import InputFile, Sparse, Stream
from partitioning.values import Value


class Explained(StrEnum):
    """Who says why offsets are missing: the file that was to hold them has fewer records, as it says itself; the broker
    gave none; their stream is declared sparse; somebody accepted that they are lost; or nobody."""

    FOOTER = "footer"
    BROKER = "broker"
    SPARSE = "sparse"
    ACCEPTED = "accepted"
    NOBODY = "nobody"


class Gap(Value, frozen=True):
    """So many of these offsets are missing: some of a `file`, or all, between two."""

    offsets: OffsetRange
    missing: int
    explained: Explained
    file: str | None = None


def gaps(
    stream: Stream, number: int, start: int, files: Sequence[InputFile], losses: Iterable[OffsetRange]
) -> Iterator[Gap]:
    """The gaps of a partition from `start` to the end of its last file. The files are by offset; `losses` are accepted.

    >>> views = Stream("views", "s3://landing", "ad", 1, sparse=Sparse(5))
    >>> files = [InputFile("a", 9, "", 0, 50, missing=2), InputFile("b", 9, "", 51, 60), InputFile("c", 9, "", 90, 99)]
    >>> for gap in gaps(views, 0, 0, files, ()):
    ...     print(gap.offsets, gap.missing, gap.explained)
    views-0@[0,50) 2 footer
    views-0@[50,51) 1 sparse
    views-0@[60,90) 30 nobody
    """
    partition, losses = StreamPartition(stream.name, number), tuple(losses)
    for file in files:
        if file.start > start:
            hole = OffsetRange(partition, start, file.start)
            yield Gap(hole, len(hole), explained(stream, hole, losses))
        if file.missing:
            who = Explained.FOOTER if isinstance(stream.sparse, Sparse) else Explained.NOBODY
            yield Gap(OffsetRange(partition, file.start, file.end), file.missing, who, file.path)
        start = max(start, file.end)


def planned_gaps(plan: Plan, stream: Stream, planned: PlannedPartition) -> tuple[Gap, ...]:
    """The gaps in what a batch reads of a partition."""
    return tuple(gaps(stream, planned.partition, planned.start, planned.files, plan.lost))


def covers(loss: OffsetRange, hole: OffsetRange) -> bool:
    """Whether all offsets of a hole were accepted as lost."""
    return loss.partition == hole.partition and loss.start <= hole.start and hole.end <= loss.end


def explained(stream: Stream, hole: OffsetRange, losses: Iterable[OffsetRange]) -> Explained:
    """Who says why there is nothing between two files."""
    if any(covers(loss, hole) for loss in losses):
        return Explained.ACCEPTED
    if isinstance(stream.sparse, Sparse) and len(hole) <= stream.sparse.gap:
        return Explained.SPARSE
    return Explained.NOBODY


def next_step(hole: OffsetRange) -> str:
    """What to do about a hole that nobody explains."""
    declare = f'declare offsets="sparse({len(hole)})"'
    nothing = f"if no record was there, as in a compacted or transactional topic, {declare}"
    return f"land the files that are missing; {nothing}; {go_on_without(hole)}"


def go_on_without(hole: OffsetRange) -> str:
    """How to accept a loss."""
    return f"`--accept-loss '{hole}'` of `coset plan`, `run` and `replan` goes on without them, and records the loss"
