"""Verdicts and commits: the decision on a batch with the files it names, and the receipt of its publication."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from msgspec import UNSET, UnsetType

from partitioning.model.artefact import Artefact, Role, files_of
from partitioning.model.journal import Occasion
from partitioning.model.measures import Measured
from partitioning.model.watermarks import LatestTimes
from partitioning.sections import many
from partitioning.values import Document, Value


class Decision(StrEnum):
    """What happens to a batch."""

    PUBLISH = "publish"
    ABANDON = "abandon"


class Judged(Value, frozen=True, tag="judged", tag_field="reason", omit_defaults=True):
    """What the checks found: `records` in `partitions`, `keys` compared (one in `key_sample`), how many `expectations`
    there were and were `met`, and how many accepted offsets are `lost`."""

    records: int
    partitions: int
    keys: int
    key_sample: int
    expectations: int
    met: int
    lost: int = 0

    def __str__(self) -> str:
        kept = "all" if self.met == self.expectations else f"{self.met:,} of"
        lost = f", {many(self.lost, 'offset')} accepted as lost" if self.lost else ""
        sampled = f" (one in {self.key_sample:,})" if self.key_sample > 1 else ""
        return (
            f"{many(self.records, 'record')} in {many(self.partitions, 'stream partition')}, "
            f"{many(self.keys, 'key')} compared{sampled}, {kept} {many(self.expectations, 'expectation')} met{lost}"
        )


class GivenUp(Value, frozen=True, tag="given up", tag_field="reason"):
    """Who gave the batch up, and why, in the user's words."""

    words: str

    def __str__(self) -> str:
        return self.words


class Verdict(Document, frozen=True, omit_defaults=True):
    """The decision on a batch, stored once and never changed, and `why` it was taken.

    `publish` names the exact files, as they were when the checks passed. `abandon` publishes nothing; the next batch
    starts where the one before this ended. `taken` says when and by whom; verdicts of earlier versions omit it.
    `measured` has the figures of result tables that expectations asked for, `times` the latest event times of streams.
    """

    FORMAT: ClassVar[str] = "coset.verdict/4"

    plan: str
    batch: int
    decision: Decision
    attempt: int
    why: Judged | GivenUp
    artefacts: tuple[Artefact, ...]
    taken: Occasion | None = None
    measured: tuple[Measured, ...] = ()
    times: tuple[LatestTimes, ...] | UnsetType = UNSET

    @property
    def latest_times(self) -> tuple[LatestTimes, ...]:
        """The latest event times of the streams that say when their records happened."""
        return self.times if isinstance(self.times, tuple) else ()

    def files_of(self, table: str) -> tuple[Artefact, ...]:
        """The files of a result table: with its rows, and with the keys of those that are replaced."""
        return files_of(self.artefacts, table)

    def rows_of(self, table: str) -> tuple[Artefact, ...]:
        """The files with the rows of a result table."""
        return tuple(artefact for artefact in self.artefacts if (artefact.role, artefact.name) == (Role.TABLE, table))


class TableVersion(Value, frozen=True, order=True):
    """The Delta version that holds a batch's rows."""

    table: str
    version: int


class Commit(Document, frozen=True):
    """The receipt of a publication; rebuilt from the Delta logs if it is missing."""

    FORMAT: ClassVar[str] = "coset.commit/3"

    plan: str
    batch: int
    verdict: str
    tables: tuple[TableVersion, ...]
