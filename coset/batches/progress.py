"""Progress: how far a pipeline has read each stream partition, and its lag in records and in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coset.sources.discovery import discover, discover_sound
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import CosetError, Finding, Refused
from partitioning.model.journal import Lag
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import Ends
from partitioning.model.streams import Discovered, DiscoveredPartition

_NONE: Mapping[str, frozenset[int]] = {}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stream partition. None means that nothing is committed yet, or that the latest is unknown.

    `lag` counts the landed records that no published batch has. `lag_seconds` is the age of the oldest file with such
    records. Both are unknown if the landed offsets end before the committed one.
    """

    partition: StreamPartition
    committed: int | None
    latest: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None

    @property
    def gone(self) -> str | None:
        """A sentence if the landed offsets end before the committed one."""
        if self.committed is None or self.latest is None or self.latest >= self.committed:
            return None
        lies = f"its files end at offset {self.latest:,}" if self.latest else "it has no files any more"
        return f"{self.partition} is committed up to offset {self.committed:,}, but {lies}."


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The progress of all stream partitions. `wrong` is the error of looking at the streams, with what stops the next
    batch; what is committed is known all the same."""

    partitions: tuple[Progress, ...]
    wrong: CosetError | None

    @property
    def lag(self) -> int | None:
        """The lag of all partitions. None if that of one is unknown."""
        lags = [progress.lag for progress in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def lag_seconds(self) -> float:
        """The greatest known lag in time."""
        return max((progress.lag_seconds or 0.0 for progress in self.partitions), default=0.0)


def lag_of(pipeline: Pipeline, ends: Ends, found: Iterable[Discovered], now: datetime) -> Lag | None:
    """How far behind a pipeline is whose published batches have read up to these ends, by what was found; None if that
    is not known of some partition."""
    each = list(_partitions(pipeline, ends, {stream.stream: stream for stream in found}, now))
    total = PipelineProgress(tuple(each), None).lag
    waiting = [progress for progress in each if progress.lag]
    if total is None or not waiting:
        return None if total is None else Lag(0)
    most = max(waiting, key=lambda progress: progress.lag or 0)
    oldest = max(waiting, key=lambda progress: progress.lag_seconds or 0.0)
    waited = int((oldest.lag_seconds or 0.0) * 1000)
    return Lag(total, most.lag or 0, str(most.partition), waited, str(oldest.partition))


def progress(pipeline: Pipeline, ends: Ends, now: datetime, stopping: Sequence[Finding] = ()) -> PipelineProgress:
    """The progress of a pipeline whose published batches have these ends. Findings on result tables may be `stopping`
    the next batch: these refuse it, also where the streams are only out of reach."""
    wrong: CosetError | None = None
    doubtful = dict[str, frozenset[int]]()
    try:
        discovered = {found.stream: found for found in discover(pipeline.streams, ends)}
    except CosetError as error:
        # A fault of one stream partition hides no other.
        wrong, looked = error, [(stream.name, discover_sound(stream, ends)) for stream in pipeline.streams]
        discovered = {name: found for name, (found, _) in looked if found is not None}
        doubtful = {name: numbers for name, (_, numbers) in looked}
    if stopping:
        wrong = Refused(*(wrong.findings if wrong else ()), *stopping)
    return PipelineProgress(tuple(_partitions(pipeline, ends, discovered, now, doubtful)), wrong)


def _partitions(
    pipeline: Pipeline,
    ends: Ends,
    discovered: Mapping[str, Discovered],
    now: datetime,
    doubtful: Mapping[str, frozenset[int]] = _NONE,
) -> Iterator[Progress]:
    for stream in pipeline.streams:
        for number in range(stream.partitions):
            partition = StreamPartition(stream.name, number)
            end = ends.end(stream.name, number)
            done = end.end if end else None
            if stream.name in discovered and number not in doubtful.get(stream.name, ()):
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
