"""Gaps: offsets of a stream partition without a record, and what explains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.streams import InputFile, Stream
from partitioning.values import Value

# The marker that ends a transaction takes an offset. An empty transaction between two others adds a second one.
_MARKERS = 2
# A gap counts as compaction's if a gap this long is at least this likely, given how many offsets the files around it
# lack.
_UNLIKELY = 1e-6


class Explained(StrEnum):
    """What explains missing offsets: the footer of the file that should hold them; the broker; transaction markers;
    compaction, judged by the files around; only the stream's declaration; a loss that somebody accepted; or nothing."""

    FOOTER = "footer"
    BROKER = "broker"
    MARKERS = "markers"
    COMPACTED = "compacted"
    DECLARED = "declared"
    ACCEPTED = "accepted"
    NOBODY = "nobody"


class Gap(Value, frozen=True):
    """A gap: `missing` of these offsets have no record. They lie in a `file`, or between two."""

    offsets: OffsetRange
    missing: int
    explained: Explained
    file: str | None = None


def gaps(
    stream: Stream,
    number: int,
    start: int,
    files: Sequence[InputFile],
    losses: Iterable[OffsetRange],
    end: int | None = None,
) -> Iterator[Gap]:
    """The gaps of a partition from `start` to `end`, or to the end of its last file. The files are sorted by offset.
    `losses` were accepted.

    >>> from partitioning.model.streams import Sparse
    >>> views = Stream("views", "s3://landing", "ad", 1, sparse=Sparse(5))
    >>> files = [InputFile("a", 9, "", 0, 50, missing=2), InputFile("b", 9, "", 51, 60), InputFile("c", 9, "", 90, 99)]
    >>> for gap in gaps(views, 0, 0, files, ()):
    ...     print(gap.offsets, gap.missing, gap.explained)
    views-0@[0,50) 2 footer
    views-0@[50,51) 1 markers
    views-0@[60,90) 30 nobody
    """
    partition, losses = StreamPartition(stream.name, number), tuple(losses)
    for place, file in enumerate(files):
        if file.start > start:
            hole = OffsetRange(partition, start, file.start)
            yield Gap(hole, len(hole), explained(stream, hole, losses, files[max(0, place - 1) : place + 1]))
        if file.missing:
            who = Explained.FOOTER if stream.may_lack_offsets else Explained.NOBODY
            yield Gap(OffsetRange(partition, file.start, file.end), file.missing, who, file.path)
        start = max(start, file.end)
    if end is not None and start < end:
        hole = OffsetRange(partition, start, end)
        yield Gap(hole, len(hole), explained(stream, hole, losses, files[-1:]))


def covers(loss: OffsetRange, hole: OffsetRange) -> bool:
    """Whether all offsets of a hole were accepted as lost."""
    return loss.partition == hole.partition and loss.start <= hole.start and hole.end <= loss.end


def explained(
    stream: Stream, hole: OffsetRange, losses: Iterable[OffsetRange], around: Iterable[InputFile]
) -> Explained:
    """What explains a gap between two files. `around` has the known ones of the two."""
    if any(covers(loss, hole) for loss in losses):
        return Explained.ACCEPTED
    if stream.sparse is None or len(hole) > stream.sparse.gap:
        return Explained.NOBODY
    if len(hole) <= _MARKERS:
        return Explained.MARKERS
    lacking = max((file.missing / (file.end - file.start) for file in around if file.end > file.start), default=0)
    if lacking ** len(hole) >= _UNLIKELY:
        return Explained.COMPACTED
    return Explained.NOBODY if stream.sparse.usual else Explained.DECLARED


def doubtful(gaps: Iterable[Gap]) -> int:
    """How many offsets are missing that only a declaration explains."""
    return sum(gap.missing for gap in gaps if gap.explained is Explained.DECLARED)


def next_step(hole: OffsetRange) -> str:
    """What to do about an unexplained gap."""
    declare = f'declare offsets="sparse({len(hole)})"'
    nothing = f"if no record was there, as where a transaction was aborted, {declare}, and it is a warning"
    return f"land the files that are missing; {nothing}; {go_on_without(hole)}"


def go_on_without(*holes: OffsetRange) -> str:
    """How to accept losses."""
    options = " ".join(f"--accept-loss '{hole}'" for hole in holes)
    return f"`{options}` of `coset plan`, `run` and `replan` goes on without them, and records the loss"
