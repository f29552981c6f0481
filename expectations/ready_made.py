"""Ready-made expectations on result tables: each judges one figure, most by what it was after the batches before.

They judge a table with a row for each figure: table, figure; its `value`, and `before` the number and value of each
batch before, oldest first, as JSON; whether the table is `appended` to, whether this is `backfilled`, why measuring it
has `failed`, and `as_of`, the time at which the batch was planned. One that cannot be judged yet is met, and says so.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd
from great_expectations.compatibility.pydantic import validator

from coset.sources.rows import each_row
from expectations.judging import TableExpectation, TableRecords
from partitioning.model.figures import FEWEST, usual_from
from partitioning.model.journal import as_time
from partitioning.model.measures import NOT_JUDGED, READY_MADE, Measure, microseconds
from partitioning.sections import many

# Sums of floating-point numbers differ in their last digits with the order of rows.
_LAST_DIGITS = 1e-12
_SECOND = 10**6


class FigureExpectation(TableExpectation):
    """An expectation on the figure of its kind of a `column`, if it is of one."""

    column: str = ""
    needed = ("table", "figure", "value", "before", "appended", "backfilled", "failed", "as_of")

    def _validate(self, metrics: dict[str, Any], *args: Any, **more: Any) -> dict[str, Any]:
        judged = super()._validate(metrics, *args, **more)
        # It is about a figure. Of counts, pages would say how many of its one row are wrong.
        told = {"observed_value": judged["result"]["observed_value"]}
        _, unjudged, _ = self._seen(metrics[TableRecords.metric_name])
        return judged | {"result": told | ({"details": {NOT_JUDGED: unjudged}} if unjudged else {})}

    @property
    def measure(self) -> Measure:
        """What it judges."""
        return Measure(READY_MADE[self.expectation_type], self.column)

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        seen, unjudged, wrong = self._seen(frame)
        return (wrong or seen) + (f": not judged, {unjudged}" if unjudged else ""), 1, int(bool(wrong)), ()

    def _seen(self, frame: pd.DataFrame) -> tuple[str, str, str]:
        """What was seen, why it cannot be judged, and what is wrong with it; the last two are empty if it is not so."""
        (row,) = each_row(frame[frame["figure"] == str(self.measure)])
        value, before = json.loads(row.value), [(batch, known) for batch, known in json.loads(row.before)]
        seen = f"{self.measure} is {'unknown' if value is None else self._shown(value)}"
        if row.failed:
            raise ValueError(row.failed)
        return seen, *self._judged(row, value, before)

    @abstractmethod
    def _judged(self, row: Any, value: Any, before: list[tuple[int, Any]]) -> tuple[str, str]:
        """Why the value cannot be judged, and what is wrong with it; each empty if it is not so."""

    def _shown(self, value: Any) -> str:
        """A value for people."""
        return f"{value:,}"


class UsualExpectation(FigureExpectation):
    """Expect a figure to be as the batches before had it."""

    lower: ClassVar[bool] = True

    def _judged(self, row: Any, value: Any, before: list[tuple[int, Any]]) -> tuple[str, str]:
        if value is None:
            return "there are no rows", ""
        known = [each for _, each in before]
        usual = usual_from(known)
        if usual is None:
            backfill = "a backfill is compared with what was published"
            return backfill if row.backfilled else f"it needs {FEWEST} batches, and has {len(known)}", ""
        low, high = usual if self.lower else (-math.inf, usual[1])
        if low <= value <= high:
            return "", ""
        had = self._range(min(known), max(known))
        batches = many(len(known), "batch", "batches")
        return "", f"{self._what(row, value)}; the {batches} before had {had}, {self._band(usual)}"

    def _range(self, least: Any, most: Any) -> str:
        low, high = self._shown(least), self._shown(most)
        return low if low == high else f"{low} to {high}"

    def _band(self, usual: tuple[float, float]) -> str:
        return f"so that {math.ceil(usual[0]):,} to {math.floor(usual[1]):,} is usual"

    @abstractmethod
    def _what(self, row: Any, value: Any) -> str:
        """What the table has."""


class ExpectRowsAsUsual(UsualExpectation):
    """Expect a table to get, or to have, as many rows as usual."""

    sentence = "There are as many rows as usual."

    def _what(self, row: Any, value: Any) -> str:
        return f"{row.table} {_has(row)} {many(value, 'row')}"


class ExpectKeysAsUsual(UsualExpectation):
    """Expect a table to get, or to have, as many distinct keys as usual."""

    sentence = "There are as many distinct keys as usual."

    def _what(self, row: Any, value: Any) -> str:
        return f"{row.table} {_has(row)} {many(value, 'distinct key')}"


class ExpectFewNulls(UsualExpectation):
    """Expect a column to be null in at most a share of the rows, or in at most the usual one."""

    sentence = "The share of nulls in $column is at most $at_most."
    args_keys: ClassVar[tuple[str, ...]] = ("column", "at_most")
    success_keys: ClassVar[tuple[str, ...]] = args_keys
    lower: ClassVar[bool] = False

    at_most: float | str = "as usual"

    @validator("at_most")
    def _is_share(cls, at_most: float | str) -> float | str:  # noqa: N805
        if at_most != "as usual" and not (isinstance(at_most, float) and 0 <= at_most <= 1):
            raise ValueError(f"at_most is {at_most!r}, and a share is from 0 to 1")
        return at_most

    def _judged(self, row: Any, value: Any, before: list[tuple[int, Any]]) -> tuple[str, str]:
        if value is None or isinstance(self.at_most, str):
            return super()._judged(row, value, before)
        wrong = f"{self._what(row, value)}, and at most {self._shown(self.at_most)} may be"
        return "", wrong if value > self.at_most else ""

    def _what(self, row: Any, value: Any) -> str:
        return f"in {self._shown(value)} of the rows of {row.table}, {self.column} is null"

    def _band(self, usual: tuple[float, float]) -> str:
        return f"so that up to {self._shown(usual[1])} is usual"

    def _shown(self, value: Any) -> str:
        return f"{100 * value:.4g} %"


class ExpectFresh(FigureExpectation):
    """Expect the latest time of a column to lie at most `within` before the time at which the batch was planned."""

    sentence = "The latest $column is at most $within older than the plan."
    args_keys: ClassVar[tuple[str, ...]] = ("column", "within")
    success_keys: ClassVar[tuple[str, ...]] = args_keys

    within: str

    @validator("within")
    def _is_time(cls, within: str) -> str:  # noqa: N805
        microseconds(within)
        return within

    def _judged(self, row: Any, value: Any, before: list[tuple[int, Any]]) -> tuple[str, str]:
        if pd.isna(row.as_of):
            return "the plan notes no time", ""
        if value is None:
            return "no row has a time that counts", ""
        age = int(row.as_of) - value
        if age <= microseconds(self.within):
            return "", ""
        planned = as_time(int(row.as_of) // 1000)
        return "", (
            f"the latest {self.column} of {row.table} is {self._shown(value)}, {_long(age)} before the batch was "
            f"planned ({planned}); at most {self.within} is expected"
        )

    def _shown(self, value: Any) -> str:
        return as_time(value // 1000)


class ExpectNeverFalls(FigureExpectation):
    """Expect the sum of a column over the whole table not to be less than after the batch before."""

    sentence = "The sum of $column does not fall."
    args_keys: ClassVar[tuple[str, ...]] = ("column",)
    success_keys: ClassVar[tuple[str, ...]] = args_keys

    def _judged(self, row: Any, value: Any, before: list[tuple[int, Any]]) -> tuple[str, str]:
        if row.appended:
            wrong = (
                f"the rows that {row.table} gets add {value:,} to {self.measure}, so that it would fall"
                if value
                else ""
            )
            return "", wrong if value is not None and value < 0 else ""
        if value is None or not before:
            backfill = "a backfill is compared with what was published"
            why = "no row has a number" if value is None else "it needs 1 batch, and has 0"
            return backfill if row.backfilled else why, ""
        batch, last = before[-1]
        lost = last - value
        if lost <= (0 if isinstance(value, int) and isinstance(last, int) else _LAST_DIGITS * abs(last)):
            return "", ""
        return "", f"{self.measure} of {row.table} would be {value:,}; after batch {batch} it was {last:,}"


def _has(row: Any) -> str:
    return "gets" if row.appended else "would have"


def _long(age: int) -> str:
    """How long ago, in the largest unit of which there are two."""
    for unit, seconds in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if age >= 2 * seconds * _SECOND:
            return many(round(age / (seconds * _SECOND)), unit)
    return many(age // _SECOND, "second")
