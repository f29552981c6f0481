"""Streams as they are planned: what a batch reads of each, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import UNSET, UnsetType

from partitioning.model.gaps import Gap, gaps
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.model.takes import Task
from partitioning.values import Value, replace


class PlannedPartition(Value, frozen=True, gc=False, omit_defaults=True):
    """A stream partition in this batch: the offsets [start, end) are read, `committed` is where the last batch ended.

    `files` hold the range and are pinned by size and etag. `bytes` is the range's share of them. `missing` offsets of
    the range are in no file; `Plan.gaps` explains them. For a topic read from its broker, `epoch` is the leader epoch
    (KIP-101) that its log had reached at planning, -1 if unknown; for an Iceberg table, the snapshot up to which all is
    taken, -1 if something is left. `doubles` are parts of files with the same records as
    `files`, or as what was read before: planning has compared them, and nobody reads them.
    """

    partition: int
    beginning: int
    committed: int
    start: int
    end: int
    bytes: int
    files: tuple[InputFile, ...]
    missing: int = 0
    epoch: int = -1
    doubles: tuple[InputFile, ...] = ()

    @property
    def records(self) -> int:
        """How many records the range holds."""
        return self.end - self.start - self.missing

    def within(self, span: Span) -> PlannedPartition:
        """The part of it that a task with these offsets only reads: files and their share of the bytes.

        If a file with gaps is cut, the number of records on each side is an estimate.
        """
        files = tuple(file for file in self.files if max(file.start, span.start) < min(file.end, span.end))
        size = sum(file.share(span.start, span.end) for file in files)
        held = sum(file.held(span.start, span.end) for file in files) if self.missing else span.end - span.start
        missing = span.end - span.start - held
        return replace(self, start=span.start, end=span.end, bytes=size, files=files, missing=missing)


class PlannedStream(Value, frozen=True, omit_defaults=True, dict=True):
    """A stream in this batch: declaration, columns, and each partition by number.

    New files lack the columns in `lacking`, which read as null. No file allows nulls in `required` columns. Those that
    are `untyped` are null in all records so far, and none of `columns`. `topic` is the id of a topic read from its
    broker, or of an Iceberg table, whose columns have these `ids` in all of its files, whatever their names there.
    """

    declared: Stream
    columns: tuple[Column, ...]
    partitions: Sequence[PlannedPartition]
    lacking: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    topic: str = ""
    untyped: tuple[str, ...] = ()
    ids: Mapping[str, int] | UnsetType = UNSET

    @property
    def name(self) -> str:
        return self.declared.name

    @cached_property
    def records(self) -> int:
        """How many records the batch reads of it."""
        return sum(partition.records for partition in self.partitions)

    def records_of(self, only: Sequence[int] | None) -> int:
        """How many records the batch reads of these partitions, or of all."""
        return self.records if only is None else sum(self.partitions[number].records for number in only)

    def range(self, partition: int) -> OffsetRange:
        """What the batch reads of a partition."""
        planned = self.partitions[partition]
        return OffsetRange(StreamPartition(self.name, partition), planned.start, planned.end)

    def read_by(self, task: Task) -> tuple[PlannedPartition, ...]:
        """The partitions that a task reads, each with the part it reads."""
        partitions = (self.partitions[number] for number in task.reads.get(self.name, ()))
        span = task.span_of(self.name)
        return tuple(partitions if span is None else (planned.within(span) for planned in partitions))

    def gaps(self, losses: Sequence[OffsetRange]) -> Iterator[Gap]:
        """The offsets without a record in what the batch reads of it. These `losses` were accepted."""
        for planned in self.partitions:
            yield from gaps(self.declared, planned.partition, planned.start, planned.files, losses, planned.end)
