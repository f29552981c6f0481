"""Progress: how far each stream partition of a pipeline is, and how far behind: in records and in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import CosetError
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import Ends
from partitioning.model.streams import Discovered, DiscoveredPartition


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream partition is. None is not zero: nothing was committed yet, or the latest is unknown.

    `lag` counts the records that are landed and in no published batch; the oldest file with such records landed
    `lag_seconds` ago. Both are unknown, too, where what lies there ends before what is committed.
    """

    partition: StreamPartition
    committed: int | None
    latest: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None

    @property
    def gone(self) -> str | None:
        """A sentence if less lies there than is committed."""
        if self.committed is None or self.latest is None or self.latest >= self.committed:
            return None
        lies = f"its files end at offset {self.latest:,}" if self.latest else "no file is left of it"
        return f"{self.partition} is committed up to offset {self.committed:,}, but {lies}."


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The progress of all stream partitions, and what is `wrong` with the landed files, if anything: what is committed
    can be said without."""

    partitions: tuple[Progress, ...]
    wrong: CosetError | None

    @property
    def lag(self) -> int | None:
        """All records that wait; None if that is not known of some partition."""
        lags = [progress.lag for progress in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def lag_seconds(self) -> float:
        """How long the oldest of them have waited, as far as that is known."""
        return max((progress.lag_seconds or 0.0 for progress in self.partitions), default=0.0)


def progress(pipeline: Pipeline, ends: Ends, now: datetime) -> PipelineProgress:
    """How far a pipeline is whose published batches have read up to these ends."""
    discovered: Mapping[str, Discovered] = {}
    wrong = None
    try:
        discovered = {found.stream: found for found in discover(pipeline.streams, ends)}
    except CosetError as error:
        wrong = error
    return PipelineProgress(tuple(_partitions(pipeline, ends, discovered, now)), wrong)


def _partitions(
    pipeline: Pipeline, ends: Ends, discovered: Mapping[str, Discovered], now: datetime
) -> Iterator[Progress]:
    for stream in pipeline.streams:
        for number in range(stream.partitions):
            partition = StreamPartition(stream.name, number)
            end = ends.end(stream.name, number)
            done = end.end if end else None
            if stream.name in discovered:
                yield _progress(partition, done, discovered[stream.name].partitions[number], now)
            else:
                yield Progress(partition, done)


def _progress(partition: StreamPartition, done: int | None, found: DiscoveredPartition, now: datetime) -> Progress:
    start = found.beginning if done is None else done
    if found.end < start:
        return Progress(partition, done, found.end)
    lag = sum(file.held(start, file.end) for file in found.files)
    waited = max(0.0, (now - found.landed).total_seconds()) if lag and found.landed else 0.0
    return Progress(partition, done, found.end, lag, waited)
