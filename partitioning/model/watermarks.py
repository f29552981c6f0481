"""Watermarks: up to which event time the records of a stream, and so of the steps after it, have come.

A plan fixes them from what the batches before it have counted, so that a retry or a backfill goes by the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from partitioning.values import Value

# By how much event times may exceed the day on which a batch is planned, unless a stream or step sets it.
AHEAD = timedelta(days=1)
# How long a stream partition without new records holds the watermark back, unless a stream sets it.
IDLE = timedelta(days=1)


class Late(StrEnum):
    """What becomes of a record whose window was given before it came: it is dropped and counted, set aside by its
    stream, or the window is given again with it."""

    DROP = "drop"
    SET_ASIDE = "set aside"
    CORRECT = "correct"


class EventTime(Value, frozen=True, omit_defaults=True):
    """When a stream's records happened: an SQL expression over its columns.

    A record may come `late` after later ones of its partition. A partition without new records for `idle`, in minutes
    of planning, does not hold the watermark back. One that is silent holds it back by `behind` at most, in event time.
    Times more than `ahead` after the day of planning do not count. All in microseconds.
    """

    sql: str
    late: int
    idle: int
    ahead: int
    behind: int | None = None


class LatestTimes(Value, frozen=True):
    """The latest event time of each partition of a stream that a batch counted, by number; None if it has none."""

    stream: str
    latest: tuple[int | None, ...]

    def of(self, partition: int) -> int | None:
        """The latest of a partition."""
        return self.latest[partition] if partition < len(self.latest) else None


class Watermark(Value, frozen=True):
    """The watermark of a stream in a batch: no record before `time` is expected any more. None if that is not known.

    `latest` has the latest event time of each partition in the batches before. `quiet` says since which minute of
    planning each has had no new record, None if this batch reads some. Those that wait no longer for their partition
    are `idle`. Those that had none in the batch before either are `silent`, if the stream says how far `behind` the
    others they may hold it back. Times are microseconds.
    """

    stream: str
    time: int | None
    latest: tuple[int | None, ...]
    quiet: tuple[int | None, ...]
    idle: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    behind: int | None = None

    @property
    def slowest(self) -> int | None:
        """The partition that holds it back, None if all are idle."""
        # A partition that has had no record yet comes first.
        return min(self._awake, key=lambda number: _first(self.counted(number)), default=None)

    @property
    def reached(self) -> int | None:
        """The time that all partitions that count have reached. If all are idle, the latest of all."""
        if (slowest := self.slowest) is not None:
            return self.counted(slowest)
        return max((time for time in self.latest if time is not None), default=None)

    @property
    def yields(self) -> int | None:
        """By how much at most it is behind the other streams of a step, as no partition has new records; None if it
        waits for some."""
        if not self._awake:
            return 0
        return self.behind if set(self._awake) <= set(self.silent) else None

    def counted(self, partition: int) -> int | None:
        """The time that a partition counts as having reached."""
        latest, firm = self.latest[partition], [each for each in self._awake if each not in self.silent]
        others = min((self.latest[each] for each in firm), key=_first, default=None)
        if partition in firm or others is None or self.behind is None:
            return latest
        return max(others - self.behind, others - self.behind if latest is None else latest)

    @property
    def _awake(self) -> Sequence[int]:
        return [number for number in range(len(self.latest)) if number not in self.idle]


def _first(time: int | None) -> tuple[bool, int]:
    return time is not None, time or 0


class TimePassed(Value, frozen=True):
    """The watermark of all streams that a step comes from: in the batch `before`, and `now`. None: not known yet."""

    before: int | None
    now: int | None
