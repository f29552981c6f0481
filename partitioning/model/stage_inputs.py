"""What a batch reads of each stream, and what a stage reads: streams, exchanges, results of earlier stages, state of
earlier batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import field

from partitioning.model.gaps import Gap, gaps
from partitioning.model.graph import ColumnChange, KeptChange, KeptVersion
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.placement import Placement, newest_of
from partitioning.model.streams import Column, InputFile, NullKeys, Stream
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
    ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

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


class StreamInput(Value, frozen=True, tag="stream", tag_field="kind"):
    """A stream, or `only` some of its `partitions` if the others move first.

    `placement` is where its records lie. If the partition count changed, that is modulo the gcd of both counts. Of a
    stream that lies by any of several hashes it may have the newest alone: only the records that lie by that are taken,
    and stay. With those before, only the others are, and move.
    """

    name: str
    placement: Placement
    partitions: int
    null_keys: NullKeys
    only: tuple[int, ...] | None = None

    @property
    def step(self) -> str:
        """The stream whose records it holds."""
        return self.name

    def stays(self, declared: Stream) -> bool | None:
        """Whether it takes only the records that stay, or only those that move (False); None if it takes all."""
        return None if self.placement.hash == declared.hash else self.placement.hash == newest_of(declared.hash)

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions to read, ascending."""
        return range(self.partitions) if self.only is None else self.only


class _Left(Value, frozen=True, omit_defaults=True):
    """What tasks wrote of the stream or step `step`, in the partitions of `placement`."""

    name: str
    step: str
    placement: Placement

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions to read, ascending."""
        return range(self.placement.partitions)


class ExchangeInput(_Left, frozen=True, tag="exchange", tag_field="kind"):
    """Records from an exchange: these columns of the stream or step `step`, placed by `placement`.

    Each partition is split between `unifiers`. The share of unifier u in partition p of n has the number u * n + p.
    """

    columns: tuple[Column, ...] = ()
    unifiers: int = 1

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers to read, ascending."""
        return range(self.placement.partitions * self.unifiers)


class ResultInput(_Left, frozen=True, tag="result", tag_field="kind"):
    """The output of a step of an earlier stage, read where it was written: these columns."""

    columns: tuple[Column, ...] = ()


class StateRun(Value, frozen=True, omit_defaults=True, gc=False):
    """What one `batch` wrote of a state: `records` rows, in the files that its verdict names, with this digest.

    `latest` is the greatest `@time` of the rows. This batch rewrites what is still needed of a run that is `merged`;
    later batches do not read that run. The rows take up so many `bytes` in the files; plans of earlier versions omit
    it. A run that was written under another name of the state has it as `name`. Its columns are those of the input, or
    of its `version`, counted from 1.
    """

    batch: int
    verdict: str
    records: int
    latest: int | None = None
    merged: bool = False
    bytes: int = 0
    name: str = ""
    version: int = 0


class StateInput(_Left, frozen=True, tag="state", tag_field="kind"):
    """The state of one of the stage's steps, up to an earlier `batch`: these columns, in `runs`, newest first.

    Runs of earlier `versions` are read as if they had these columns. `changes` are those that this batch makes in what
    the step keeps, as `declared`: the first batch that reads older runs in that way or, if it migrates, writes all rows
    again. The state was that of the step `was`, if the step was called so.
    """

    batch: int
    columns: tuple[Column, ...] = ()
    runs: tuple[StateRun, ...] = ()
    versions: tuple[KeptVersion, ...] = ()
    changes: tuple[ColumnChange, ...] = ()
    declared: KeptChange | None = None
    was: str = ""

    @property
    def records(self) -> int:
        """How many records all runs hold."""
        return sum(run.records for run in self.runs)

    @property
    def migration(self) -> KeptChange | None:
        """The declaration by which all rows are written again, if they are."""
        return self.declared if self.declared and self.declared.migrates else None

    def written_as(self, run: StateRun) -> str:
        """The name of the state under which a run was written."""
        return run.name or self.name

    @property
    def unmerged(self) -> int:
        """The newest batch whose run is not merged, -1 if all are. This batch rewrites what was written since."""
        return max((run.batch for run in self.runs if not run.merged), default=-1)

    @property
    def latest(self) -> int | None:
        """The greatest `@time` that the step has kept."""
        return max((run.latest for run in self.runs if run.latest is not None), default=None)


# What a stage reads. `name` is its name in tasks, `step` the stream or step whose records it holds.
Input = StreamInput | ExchangeInput | ResultInput | StateInput
