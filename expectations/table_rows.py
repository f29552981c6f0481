"""The expectation that a batch does not remove most of a table's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.model.allowance import Allowance
from partitioning.sections import many


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

    def needs(self) -> list[str]:
        return ["table", "before", "after", "asked"]

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
