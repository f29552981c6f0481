"""Expectations on a coverage table: a row for each partition of a stage's input, as `batches.auditing` makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.model.allowance import limit
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
        judged = [(row, list(self._wrongs(row))) for row in each_row(frame)]
        bad = [f"{_range(row)}: {'; '.join(wrongs)}" for row, wrongs in judged if wrongs]
        return f"{many(len(frame), 'stream partition')}, {self._seen(frame)}", len(frame), len(bad), bad


class ExpectOffsetsToBeCoveredExactlyOnce(CoverageExpectation):
    """Expect each planned offset to be read, and taken, dropped or set aside, by exactly one task.

    Judges a coverage table. Each task that reads a partition read all of its range in order. The records taken,
    dropped and set aside are as many as planned. The digest of their offsets is that of the range. With missing offsets
    the planned number is that of the files, and the digest that of all read records. Records refused for want of a key
    are another expectation's. Tasks that share a hot key count as one, if they copied the same records.
    """

    sentence = "Every planned offset is read, and taken, dropped or set aside, exactly once."
    figures = (
        *("planned", "read_min", "read_max", "taken", "dropped", "set_aside"),
        *("digest_planned", "digest_found", "disorder", "copies_differ"),
    )
    violations = (Violation.OFFSET,)

    def _wrongs(self, row: Any) -> Iterable[str]:
        for read in sorted({row.read_min, row.read_max} - {row.planned}):
            yield f"a task read {read:,} of {many(row.planned, 'record')}"
        accounted = row.taken + row.dropped + row.set_aside
        if (left := row.planned - accounted - row.refused_nulls) > 0:
            yield f"{many(left, 'record')} of {row.planned:,} not taken by any task"
        if accounted > row.planned:
            yield f"{many(accounted - row.planned, 'record')} more taken than the {row.planned:,} planned"
        if not row.digest_planned:
            yield "the tasks that read it did not read the same offsets"
        elif accounted == row.planned and row.digest_found != row.digest_planned:
            yield f"the offsets taken are not those planned (digest {row.digest_found}, not {row.digest_planned})"
        if row.disorder:
            yield f"{many(row.disorder, 'offset')} missing, repeated or out of order"
        if row.copies_differ:
            yield f"{many(row.copies_differ, 'task')} did not copy the records of a hot key that the others did"

    def _seen(self, frame: pd.DataFrame) -> str:
        taken, dropped = int(frame["taken"].sum()), int(frame["dropped"].sum())
        dropping = f", {dropped:,} dropped for lack of a key" if dropped else ""
        aside = int(frame["set_aside"].sum())
        setting = f", {aside:,} set aside" if aside else ""
        planned = int(frame["planned"].sum())
        missing = int((frame["end"] - frame["start"]).sum()) - planned
        lacking = f", {many(missing, 'offset')} missing" if missing else ""
        return f"{many(planned, 'record')} planned, {taken:,} taken{dropping}{setting}{lacking}"


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
    remedy = 'declare null_keys="drop" or "own task" for the stream, or give the records keys'

    def _wrongs(self, row: Any) -> Iterable[str]:
        if row.refused_nulls:
            yield f"{many(row.refused_nulls, 'record')} without a key"

    def _seen(self, frame: pd.DataFrame) -> str:
        return f"{many(int(frame['refused_nulls'].sum()), 'record')} refused"


class ExpectSetAsideRecordsToBeKept(CoverageExpectation):
    """Expect the records that tasks set aside to lie in their files, each once, and to be the same in all stages.

    Judges a coverage table: what receipts say stands beside what the files have, as number and digest of the offsets.
    """

    sentence = "What is set aside lies in the store, each record once, and is set aside by all stages that read it."
    figures = ("stage", "set_aside", "kept_aside", "digest_aside", "digest_kept")
    violations = (Violation.SET_ASIDE,)
    remedy = "that sets aside everywhere what one stage could not use; if files are wrong, correct them"

    def _wrongs(self, row: Any) -> Iterable[str]:
        if row.set_aside != row.kept_aside:
            yield f"{many(row.set_aside, 'record')} set aside, {row.kept_aside:,} kept"
        elif row.digest_aside != row.digest_kept:
            yield f"the records kept are not those set aside (digest {row.digest_kept}, not {row.digest_aside})"
        if row.stages_differ:
            yield f"stage {row.stage} sets {many(row.set_aside, 'record')} aside, another stage others"

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        sets = frame.groupby(["input", "partition"])["digest_aside"].transform("nunique")
        return super()._judge(frame.assign(stages_differ=(sets > 1) & (frame["bad_records"] != "")))

    def _seen(self, frame: pd.DataFrame) -> str:
        return f"{many(int(frame['set_aside'].sum()), 'record')} set aside, {int(frame['kept_aside'].sum()):,} kept"


class ExpectFewRecordsToBeSetAside(CoverageExpectation):
    """Expect no more records of a stream to be set aside than it allows. Judges a coverage table."""

    sentence = "No more records are set aside than their stream allows."
    figures = ("stage", "planned", "set_aside", "bad_records")
    violations = (Violation.SET_ASIDE,)
    remedy = "if so many may be set aside, declare it: bad_records="

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        allowing = frame[frame["bad_records"] != ""]
        streams = allowing.groupby(["stage", "input", "bad_records"], sort=False)[["planned", "set_aside"]].sum()
        bad = [
            f"{row.input}: {many(int(row.set_aside), 'record')} of {int(row.planned):,} set aside, "
            f"beyond: {row.bad_records}"
            for row in each_row(streams.reset_index())
            if not limit(row.bad_records).allows(int(row.set_aside), int(row.planned))
        ]
        return self._seen(frame), len(streams), len(bad), dict.fromkeys(bad)

    def _wrongs(self, row: Any) -> Iterable[str]:
        raise NotImplementedError

    def _seen(self, frame: pd.DataFrame) -> str:
        return f"{many(int(frame['set_aside'].sum()), 'record')} set aside"


class ExpectNoRecordToBeSetAside(CoverageExpectation):
    """Expect no record to be set aside. Judges a coverage table. Coset asks it as a warning, so that people hear of
    records that are set aside."""

    sentence = "No record is set aside."
    figures = ("set_aside",)
    violations = (Violation.SET_ASIDE,)
    remedy = "land their files again with these records corrected"

    def _wrongs(self, row: Any) -> Iterable[str]:
        if row.set_aside:
            yield f"{many(row.set_aside, 'record')} set aside"

    def _seen(self, frame: pd.DataFrame) -> str:
        return f"{many(int(frame['set_aside'].sum()), 'record')} set aside"


def _range(row: Any) -> OffsetRange:
    return OffsetRange(StreamPartition(row.input, int(row.partition)), int(row.start), int(row.end))
