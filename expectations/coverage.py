"""Expectations on a coverage table: a row for each partition of a stage's input, as `batches.auditing` makes it. On
what a batch made: rows of tasks and of result tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.model.allowance import Allowance, limit
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


class ExpectRowsToBeWrittenAsTheyWereMade(TableExpectation):
    """Expect a task's files to hold as many rows as its steps made and, where records only move, as it took.

    Judges a table with a row for each task and each table, exchange, result or state that it writes, and for an
    upserted table each partition (partition): stage, task, kind, name; how many rows the steps made (made), whether the
    task counted them (counted), how many records it took if they only move (taken), and how many its files hold (left;
    missing if a file must exist and does not).
    """

    sentence = "What a task left has as many rows as its steps made; what only moves, as many as were taken."
    needed = ("stage", "task", "kind", "name", "partition", "counted", "taken", "made", "left")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        made, left, taken = (pd.array(frame[name], "Int64") for name in ("made", "left", "taken"))
        counted = pd.array(frame["counted"], "boolean")
        as_made = (made == left).fillna(False) | ~counted
        as_taken = (taken == left).fillna(False) | taken.isna()
        bad = frame[~(as_made & as_taken)]
        moved = int((~taken.isna()).sum())
        seen = [f"{many(int(left.sum()), 'row')} in {many(len(frame), 'output')} of tasks"]
        if moved:
            seen.append(f"{moved:,} held against what was taken as well")
        if missing := int((~counted).sum()):
            seen.append(f"{missing:,} were written by an earlier version, which did not count what was made")
        return "; ".join(seen), len(frame), len(bad), (_sentence(row) for row in each_row(bad))


class ExpectKeysToBeMigratedOnce(TableExpectation):
    """Expect a migration to make one row of each row that a step kept, of the same key.

    Judges a table with a row for each task and each step of which it wrote all kept rows again: stage, task, step; how
    many rows there were and are (rows_before, rows_after), and the digests of their keys (keys_before, keys_after).
    """

    sentence = "A migration made one row of each row that was kept, under the same key."
    needed = ("stage", "task", "step", "rows_before", "rows_after", "keys_before", "keys_after")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        rows = [pd.array(frame[name], "Int64") for name in ("rows_before", "rows_after")]
        same = (rows[0] == rows[1]).fillna(False) & (frame["keys_before"] == frame["keys_after"])
        bad = frame[~same]
        steps, tasks = many(frame["step"].nunique(), "step"), many(len(frame), "task")
        seen = f"{many(int(rows[0].sum()), 'row')} of {steps} in {tasks}"
        return seen, len(frame), len(bad), (_migration(row) for row in each_row(bad))


def _migration(row: Any) -> str:
    task = f"task {row.stage}/{row.task}, step {row.step}"
    if pd.isna(row.rows_before):
        return f"{task}: nothing says that it was done"
    if row.rows_before != row.rows_after:
        return f"{task}: {many(int(row.rows_after), 'row')} of {row.rows_before:,} that were kept"
    return f"{task}: {many(int(row.rows_after), 'row')}, but not of the keys that were kept"


def _sentence(row: Any) -> str:
    part = "" if pd.isna(row.partition) else f", partition {row.partition}"
    return f"task {row.stage}/{row.task}, {row.kind} {row.name}{part}: {', '.join(_wrongs(row))}"


def _wrongs(row: Any) -> Iterator[str]:
    left = "no file was left" if pd.isna(row.left) else f"{many(int(row.left), 'row')} left"
    if row.counted and pd.isna(row.made):
        yield f"nothing was made for it, {left}"
    elif row.counted and (pd.isna(row.left) or row.made != row.left):
        yield f"{many(int(row.made), 'row')} made, {left}"
    if not pd.isna(row.taken) and (pd.isna(row.left) or row.taken != row.left):
        yield f"{many(int(row.taken), 'record')} taken and only moved, {left}"


class ExpectRowsOfTablesToBalance(TableExpectation):
    """Expect the rows of each result table, less those that a batch takes away, plus those that it brings, to be the
    rows after it, and nobody else to have changed the table since the last batch.

    Judges a table with a row for each partition of an upserted table in which the batch has keys, and for each other
    table: table, partition, rows before, gone, come and after, each missing if it is not known; what others did
    (others); that rows of other keys would go (wrong); and why the rows of a table add up by construction, or are not
    known (unheld).
    """

    sentence = (
        "Rows before, less those that went, with those that came, are the rows after, and nobody else changed any."
    )
    needed = ("table", "partition", "before", "gone", "come", "after", "others", "wrong", "unheld")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [list(_unbalanced(row)) for row in each_row(frame)]
        before, gone, come, after = (f"{int(frame[name].sum()):,}" for name in ("before", "gone", "come", "after"))
        seen = [f"{many(frame['table'].nunique(), 'result table')}: {before} rows - {gone} + {come} = {after}"]
        unheld = frame[frame["unheld"] != ""]
        seen += [f"{row.table} {row.unheld}" for row in each_row(unheld)]
        return "; ".join(seen), len(frame), sum(map(bool, wrongs)), chain.from_iterable(wrongs)


def _unbalanced(row: Any) -> Iterator[str]:
    if row.others:
        yield f"{row.table}: {row.others}"
    if row.wrong:
        yield f"{row.table}: {row.wrong}"
    if not pd.isna(row.before) and row.before - row.gone + row.come != row.after:
        part = "" if pd.isna(row.partition) else f", partition {row.partition}"
        went = f"{row.gone:,} went, {row.come:,} came"
        held = f"it has {many(row.before, 'row')}, {went}, and it would have {row.after:,} after the batch"
        yield f"{row.table}{part}: {held}"


class ExpectTablesToKeepTheirRows(TableExpectation):
    """Expect each result table to keep its rows: a table of `rows` rows or more may lose at most `percent`, unless
    somebody allowed it by name.

    Judges a table with a row for each result table: table, rows before and after, and whether somebody allowed any
    loss.
    """

    sentence = "Of a table with $rows rows or more, at most $percent percent go, unless that was asked for."
    args_keys: ClassVar[tuple[str, ...]] = ("rows", "percent")
    success_keys: ClassVar[tuple[str, ...]] = args_keys

    rows: int = Allowance().rows
    percent: int = Allowance().percent
    needed = ("table", "before", "after", "asked")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        bad = [
            f"{row.table}: it has {many(row.before, 'row')}, and would have {row.after:,} after the batch"
            for row in each_row(frame)
            if self._is_bad(row)
        ]
        figures = f"{int(frame['before'].sum()):,} before, {int(frame['after'].sum()):,} after"
        return f"rows of {many(len(frame), 'result table')}: {figures}", len(frame), len(bad), bad

    def _is_bad(self, row: Any) -> bool:
        return not row.asked and Allowance(self.rows, self.percent).is_too_much(row.before, row.after)


class ExpectTablesToBeTheirQueries(TableExpectation):
    """Expect each table behind rows that change to have, once the batch is published, the rows that its query gives of
    what steps keep then.

    Judges a table with a row for each such table: table, how many rows its query gives (rows), or why nobody looked
    (unseen). And a row for each key whose rows are others: key, the rows that would be published (there), and those
    that are right.
    """

    sentence = "Each table behind rows that change has the rows that its query gives of what steps keep."
    needed = ("table", "rows", "unseen", "key", "there", "right")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        bad, tables = frame[~frame["key"].isna()], frame[frame["key"].isna()]
        seen, unseen = tables[tables["unseen"].isna()], tables[~tables["unseen"].isna()]
        said = [f"{many(int(seen['rows'].sum()), 'row')} of {many(len(seen), 'table')}"]
        said += [f"not looked at: {row.table}, as {row.unseen}" for row in each_row(unseen)]
        wrongs = (
            f"{row.table}, key {row.key}: {row.there or 'no row'} would be published, {row.right or 'no row'} is right"
            for row in each_row(bad)
        )
        return "; ".join(said), len(tables), len(bad), wrongs
