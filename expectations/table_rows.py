"""Expectations on rows of result tables: that their numbers add up, that most stay, and that they are their queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.model.allowance import Allowance
from partitioning.sections import many


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
