"""The journal of a batch: when, where and by whom each part of it was done first, and how far behind its pipeline was.
Reports show it; it decides nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

from partitioning.values import Document, Value


class Occasion(Value, frozen=True, omit_defaults=True):
    """When and where something ran: from `began` to `ended`, in milliseconds since 1970 in UTC, on a `host`, by a
    `user` of it, and in a `run` of Airflow if it was one."""

    began: int
    ended: int
    host: str
    user: str = ""
    run: str = ""


def as_time(milliseconds: int) -> str:
    """A time for people, to the second.

    >>> as_time(1_795_514_400_999)
    '2026-11-24 10:00:00 UTC'
    """
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def as_iso(milliseconds: int) -> str:
    """A time for programs, as RFC 3339 has it.

    >>> as_iso(1_795_514_400_999)
    '2026-11-24T10:00:00.999Z'
    """
    at = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


class Effort(Value, frozen=True):
    """What a batch took: when its first task group began and its last one ended, in milliseconds since 1970, and the
    CPU time of all its tasks in milliseconds, None if that of a task is unknown.

    >>> str(Effort(1_000, 3_500, 4_200))
    '1970-01-01 00:00:01 UTC, 2.5 s, 4.2 s of CPU'
    """

    began: int
    ended: int
    cpu_milliseconds: int | None = None

    @property
    def seconds(self) -> float:
        """From the first beginning to the last end, never below 0: clocks of several hosts may disagree."""
        return max(0, self.ended - self.began) / 1000

    def __str__(self) -> str:
        cpu = "" if self.cpu_milliseconds is None else f", {self.cpu_milliseconds / 1000:,.1f} s of CPU"
        return f"{as_time(self.began)}, {self.seconds:,.1f} s{cpu}"


class Part(StrEnum):
    """What is done for a batch in one piece. What its task groups did, their receipts say."""

    PLAN = "plan"
    AUDIT = "audit"
    CHECK = "check"
    PUBLISH = "publish"


class Lag(Value, frozen=True, omit_defaults=True):
    """How far behind a pipeline was: so many `records` had landed and were in no published batch, `most` of them in
    `most_in`; the oldest file with such records landed so many `milliseconds` before, in `oldest_in`."""

    records: int
    most: int = 0
    most_in: str = ""
    milliseconds: int = 0
    oldest_in: str = ""


class JournalEntry(Document, frozen=True, omit_defaults=True):
    """When, where and by whom a part of a batch was done first; the audit and the check in an `attempt`. `lag` is from
    before the batch was planned. Batches of earlier versions have none of these."""

    FORMAT: ClassVar[str] = "coset.journal/1"

    plan: str
    batch: int
    part: Part
    at: Occasion
    attempt: int | None = None
    lag: Lag | None = None
