"""Expectations on what a batch made: rows of tasks beside those of their steps, and rows of result tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.model.allowance import Allowance
from partitioning.sections import many


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

    Judges a table with a row for each partition of an upserted table in which the batch has keys, for its others, and
    for each other table: table, partition, rows before, gone, come and after, each missing if it is not known; what
    others did (others); that rows of other keys would go (wrong); and why the rows of a table add up by construction,
    or are not known (unheld).
    """

    sentence = (
        "Rows before, less those that went, with those that came, are the rows after, and nobody else changed any."
    )
    needed = ("table", "partition", "before", "gone", "come", "after", "others", "wrong", "unheld")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [list(_unbalanced(row)) for row in each_row(frame)]
        counted = frame[~frame["before"].isna()]
        before, gone, come, after = (f"{int(counted[name].sum()):,}" for name in ("before", "gone", "come", "after"))
        added = f"{many(counted['table'].nunique(), 'result table')}: {before} rows - {gone} + {come} = {after}"
        seen = [] if counted.empty and len(frame) else [added]
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
