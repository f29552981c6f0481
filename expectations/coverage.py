"""Expectations on a coverage table: a row for each partition of a stage's input, as `batches.audit` makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd

from expectations.judging import TableExpectation
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.receipt import Violation
from partitioning.sections import many


class CoverageExpectation(TableExpectation):
    """An expectation that judges each row of a coverage table by itself.

    `violations` are those whose first offenders explain a failure. `remedy` is its own next step.
    """

    figures: ClassVar[tuple[str, ...]]
    violations: ClassVar[tuple[Violation, ...]] = ()
    remedy: ClassVar[str] = ""

    def needs(self) -> list[str]:
        return ["input", "partition", "start", "end", *self.figures]

    def _wrongs(self, row: Any) -> Iterable[str]:
        """The errors of a stream partition, in a few words each."""
        raise NotImplementedError

    def _seen(self, frame: pd.DataFrame) -> str:
        """What was judged, to follow the number of stream partitions."""
        raise NotImplementedError

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        judged = [(row, list(self._wrongs(row))) for row in frame.itertuples()]
        bad = [f"{_range(row)}: {'; '.join(wrongs)}" for row, wrongs in judged if wrongs]
        return f"{many(len(frame), 'stream partition')}, {self._seen(frame)}", len(frame), len(bad), bad


class ExpectOffsetsToBeCoveredExactlyOnce(CoverageExpectation):
    """Expect each planned offset to be read, and taken or dropped, by exactly one task.

    Judges a coverage table. Each task that reads a partition read all of its range in order. The records taken and
    dropped are as many as planned. The digest of their offsets is that of the range. Where offsets are missing, the
    planned number is that of the files, and the digest is that of all records read. Records refused for want of a key
    count as lost.
    """

    sentence = "Every planned offset is read, and taken or dropped, exactly once."
    figures = ("planned", "read_min", "read_max", "taken", "dropped", "digest_planned", "digest_found", "disorder")
    violations = (Violation.OFFSET,)

    def _wrongs(self, row: Any) -> Iterable[str]:
        for read in sorted({row.read_min, row.read_max} - {row.planned}):
            yield f"a task read {read:,} of {many(row.planned, 'record')}"
        accounted = row.taken + row.dropped
        if accounted < row.planned:
            yield f"{many(row.planned - accounted, 'record')} of {row.planned:,} not taken by any task"
        if accounted > row.planned:
            yield f"{many(accounted - row.planned, 'record')} more taken than the {row.planned:,} planned"
        if not row.digest_planned:
            yield "the tasks that read it did not read the same offsets"
        elif accounted == row.planned and row.digest_found != row.digest_planned:
            yield f"the offsets taken are not those planned (digest {row.digest_found}, not {row.digest_planned})"
        if row.disorder:
            yield f"{many(row.disorder, 'offset')} missing, repeated or out of order"

    def _seen(self, frame: pd.DataFrame) -> str:
        taken, dropped = int(frame["taken"].sum()), int(frame["dropped"].sum())
        dropping = f", {dropped:,} dropped for lack of a key" if dropped else ""
        planned = int(frame["planned"].sum())
        missing = int((frame["end"] - frame["start"]).sum()) - planned
        lacking = f", {many(missing, 'offset')} missing" if missing else ""
        return f"{many(planned, 'record')} planned, {taken:,} taken{dropping}{lacking}"


class ExpectRecordsToLieWhereTheirKeysHash(CoverageExpectation):
    """Expect every record's key to hash to the partition it was found in, and to the task that took it.

    Judges a coverage table. Its figures count every record read, however many keys were sampled.
    """

    sentence = "Every record lies in the partition, and is taken by the task, that its key hashes to."
    figures = ("foreign", "stray", "taken")
    violations = (Violation.FOREIGN, Violation.STRAY)

    def _wrongs(self, row: Any) -> Iterable[str]:
        if row.foreign:
            yield f"{many(row.foreign, 'record')} with a key that hashes to another partition"
        if row.stray:
            yield f"{many(row.stray, 'record')} taken by a task that does not own the key"

    def _seen(self, frame: pd.DataFrame) -> str:
        foreign, stray = int(frame["foreign"].sum()), int(frame["stray"].sum())
        return f"{foreign:,} in a wrong partition, {stray:,} in a wrong task"


class ExpectRecordsToHaveKeys(CoverageExpectation):
    """Expect no record without a key in the streams that refuse them. Judges a coverage table."""

    sentence = "Every record has a key, where its stream refuses records without one."
    figures = ("refused_nulls",)
    violations = (Violation.NULL_KEY,)
    remedy = 'declare null_keys="drop" or "own task" for the stream, or land the records with keys'

    def _wrongs(self, row: Any) -> Iterable[str]:
        if row.refused_nulls:
            yield f"{many(row.refused_nulls, 'record')} without a key"

    def _seen(self, frame: pd.DataFrame) -> str:
        return f"{many(int(frame['refused_nulls'].sum()), 'record')} refused"


def _range(row: Any) -> OffsetRange:
    return OffsetRange(StreamPartition(row.input, int(row.partition)), int(row.start), int(row.end))
