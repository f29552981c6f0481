"""Verdicts and commits: the decision on a batch with the files it names, and the receipt of its publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partitioning.model.receipt import WrittenFile

PUBLISH = "publish"
ABANDON = "abandon"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a batch, put once and never changed.

    `publish` names the exact files, as they were when the checks passed; `abandon` publishes nothing, and
    the next batch starts where the one before this ended. `why` says what the decision rests on.
    """

    FORMAT: ClassVar[str] = "coset.verdict/1"

    plan: str
    batch: int
    decision: str
    attempt: int
    why: str
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True, order=True, slots=True)
class TableVersion:
    """The Delta version that holds a batch's rows."""

    table: str
    version: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The receipt of a publication; rebuilt from the Delta logs if it is missing.

    `offsets` are the ranges that it made count, as `flights-3@[100,250)`.
    """

    FORMAT: ClassVar[str] = "coset.commit/1"

    plan: str
    batch: int
    verdict: str
    tables: tuple[TableVersion, ...]
    offsets: tuple[str, ...]
