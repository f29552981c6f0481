"""Expectations on the output of tasks, compared with what their steps made of their input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
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
