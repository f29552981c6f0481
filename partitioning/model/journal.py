"""The journal of a batch: when each part of it was done first, and how far behind its pipeline was. Reports show it; it
decides nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from partitioning.model.occasion import Occasion
from partitioning.values import Document, Value


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
