"""Ends: how far each stream partition was read by published batches, whether the last one read it or not.

An offset identifies a record in one topic only. So an end also names what was read: files, topic id, leader epoch. A
plan holds the ends of what it reads, and remembers all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from msgspec import field

from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.sources import LandedSource
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.packed_rows import PackedRows
from partitioning.values import Document, Value, replace

if TYPE_CHECKING:
    from partitioning.model.stage_inputs import PlannedPartition, PlannedStream


class End(Value, frozen=True, gc=False, omit_defaults=True):
    """How far a partition was read: from `beginning` to `end`, last by `batch`, from these `files`.

    Only the last file is remembered. `epoch` is the leader epoch (KIP-101) at the end, -1 if unknown.
    """

    partition: int
    beginning: int
    end: int
    batch: int
    files: tuple[InputFile, ...] = ()
    epoch: int = -1


class StreamProgress(Value, frozen=True, omit_defaults=True, dict=True):
    """What was read of a stream, by partition number, including partitions that it no longer has.

    `declared` and the columns are those of the last `batch` that read it. No file allowed nulls in `required` columns,
    and those that are `untyped` were null in all records. `topic` is the topic's id in its broker, if it was ever read
    there. Columns of Iceberg tables have `ids`, whatever their names.
    """

    declared: Stream
    batch: int
    columns: tuple[Column, ...]
    ends: Sequence[End]
    required: tuple[str, ...] = ()
    topic: str = ""
    untyped: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.declared.name

    @cached_property
    def _by_number(self) -> Mapping[int, End]:
        return {end.partition: end for end in self.ends}

    def end(self, partition: int) -> End | None:
        """How far a partition was read. None if no batch knew the partition."""
        return self._by_number.get(partition)

    def then(self, later: StreamProgress) -> StreamProgress:
        """This, and what a later batch read of the stream."""
        ends = dict(self._by_number)
        for end in later.ends:
            ends[end.partition] = _then(ends.get(end.partition), end)
        return replace(later, ends=_by_order(ends.values()), topic=later.topic or self.topic)


class What(StrEnum):
    """What is forgotten: the position, or only which files or topic it belongs to."""

    POSITION = "position"
    SOURCE = "source"


class Forgotten(Value, frozen=True):
    """What was read of a stream partition before it was forgotten."""

    offsets: OffsetRange
    what: What

    def __str__(self) -> str:
        match self.what:
            case What.POSITION:
                return f"{self.offsets} is forgotten: it is read from its beginning when it is read next"
            case What.SOURCE:
                at = f"{self.offsets.partition} goes on at offset {self.offsets.end}"
                return f"It is forgotten of which files or topic {self.offsets} was read: {at} of what lies there now"


class Forgetting(Document, frozen=True):
    """A request to forget what a pipeline has read, made after this published batch and before the next: what, who, why
    and when. Requests are numbered without gaps."""

    FORMAT: ClassVar[str] = "coset.forget/1"

    pipeline: str
    number: int
    after: int
    forgotten: tuple[Forgotten, ...]
    who: str
    why: str
    at: str

    @property
    def counted_twice(self) -> int:
        """How many records can be counted twice: at most one for each offset that is read again."""
        return sum(len(one.offsets) for one in self.forgotten if one.what is What.POSITION)


class Ends(Value, frozen=True, dict=True):
    """What all published batches of a pipeline up to `batch` have read, by stream name."""

    batch: int = -1
    streams: tuple[StreamProgress, ...] = ()
    pipeline: str = ""

    @cached_property
    def _by_name(self) -> Mapping[str, StreamProgress]:
        return {read.name: read for read in self.streams}

    @classmethod
    def by(cls, batch: int, streams: Iterable[PlannedStream]) -> Ends:
        """What a batch itself reads."""
        return cls(batch, tuple(_read(stream, batch) for stream in streams))

    def stream(self, name: str) -> StreamProgress | None:
        """What was read of a stream. None if nothing was."""
        return self._by_name.get(name)

    def end(self, stream: str, partition: int) -> End | None:
        """How far a partition was read. None if no batch knew the partition."""
        read = self.stream(stream)
        return read.end(partition) if read else None

    def is_read_whole(self, stream: Stream) -> bool:
        """Whether a batch reads a stream whole: a table is, unless the last batch kept it."""
        read = self.stream(stream.name)
        return stream.table and not (stream.kept and read and read.declared.kept and read.batch == self.batch)

    def then(self, later: Ends) -> Ends:
        """These ends, updated by one or more later batches.

        >>> Ends(3).then(Ends(4)).batch
        4
        """
        reads = dict(self._by_name)
        for read in later.streams:
            before = reads.get(read.name)
            reads[read.name] = before.then(read) if before else read
        return replace(later, streams=tuple(reads[name] for name in sorted(reads)))

    def remembered(self) -> tuple[StreamProgress, ...]:
        """The ends of partitions that the last batch did not read, so that its plan does not have them."""
        reads = (self._of_before(read) for read in self.streams)
        return tuple(read for read in reads if read is not None)

    def _of_before(self, read: StreamProgress) -> StreamProgress | None:
        is_read = read.batch == self.batch
        ends = (end for end in read.ends if end.batch < self.batch or not is_read)
        remembered = replace(read, ends=_by_order(replace(end, files=end.files[-1:]) for end in ends))
        # A landed stream may be read from its broker again.
        has_topic = read.topic and isinstance(read.declared.origin, LandedSource)
        return remembered if remembered.ends or has_topic or not is_read else None

    def without(self, forgotten: Iterable[Forgotten]) -> Ends:
        """The ends that are still known after this is forgotten."""
        whats = {each.offsets.partition: each.what for each in forgotten}
        reads = (_without(read, whats) for read in self.streams) if whats else self.streams
        return replace(self, streams=tuple(read for read in reads if read.ends))

    def of_any_files(self) -> Ends:
        """These ends without their files."""
        reads = (replace(read, ends=_by_order(replace(end, files=()) for end in read.ends)) for read in self.streams)
        return replace(self, streams=tuple(reads))


NOTHING = Ends()


def _read(stream: PlannedStream, batch: int) -> StreamProgress:
    ends = _by_order(_end(planned, batch) for planned in stream.partitions)
    seen = stream.required, stream.topic, stream.untyped, stream.ids
    return StreamProgress(stream.declared, batch, stream.columns, ends, *seen)


def _end(planned: PlannedPartition, batch: int) -> End:
    return End(planned.partition, planned.beginning, planned.end, batch, planned.files, planned.epoch)


def _then(before: End | None, later: End) -> End:
    """The end after a later batch, even if that read nothing."""
    if before is None or later.files or before.end != later.end:
        return later
    return replace(before, beginning=later.beginning, epoch=later.epoch)


def _without(read: StreamProgress, whats: Mapping[StreamPartition, What]) -> StreamProgress:
    named = {end.partition: whats.get(StreamPartition(read.name, end.partition)) for end in read.ends}
    ends = (
        replace(end, files=(), epoch=-1) if named[end.partition] is What.SOURCE else end
        for end in read.ends
        if named[end.partition] is not What.POSITION
    )
    return replace(read, ends=_by_order(ends), topic="" if all(named.values()) else read.topic)


def _by_order(ends: Iterable[End]) -> PackedRows[End]:
    return PackedRows.of(End, sorted(ends, key=lambda end: end.partition))
