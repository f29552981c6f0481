"""What a stage reads: streams, exchanges, results of earlier stages, state of earlier batches."""

from __future__ import annotations

from collections.abc import Sequence

from partitioning.model.kept_change import ColumnChange, KeptChange, KeptVersion
from partitioning.model.placement import Placement, newest_of
from partitioning.model.streams import Column, NullKeys, Stream
from partitioning.values import Value


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
