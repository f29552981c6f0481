"""Expect: ready-made expectations on the rows of a result table, for `write(expect=…)`.

>>> few_nulls("late", at_most=0.01, severity="warning")
{'type': 'expect_few_nulls', 'kwargs': {'column': 'late', 'at_most': 0.01}, 'severity': 'warning'}

Each is a configuration as Great Expectations has them, so it may stand beside others, and in settings. A `column` is a
column of the table or an SQL expression over its columns. Each function raises Refused for an argument that cannot be.
"""

from __future__ import annotations

from typing import Any, Literal

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.measures import microseconds

Severity = Literal["error", "warning"]


def rows_as_usual(*, severity: Severity = "error") -> dict[str, Any]:
    """As many rows as the batches before had."""
    return _stated("expect_rows_as_usual", severity)


def keys_as_usual(*, severity: Severity = "error") -> dict[str, Any]:
    """As many distinct keys as the batches before had."""
    return _stated("expect_keys_as_usual", severity)


def few_nulls(column: str, *, at_most: float | None = None, severity: Severity = "error") -> dict[str, Any]:
    """The share of rows in which a column is null is `at_most` this, or at most what the batches before had."""
    if at_most is None:
        return _stated("expect_few_nulls", severity, column=column)
    if not 0 <= at_most <= 1:
        _refuse(f"a share of nulls of {at_most}", "use a number from 0 to 1")
    return _stated("expect_few_nulls", severity, column=column, at_most=at_most)


def fresh(column: str, *, within: str, severity: Severity = "error") -> dict[str, Any]:
    """The latest time in a column lies at most so long before the time at which the batch was planned: 30m, 2h, 1d."""
    try:
        microseconds(within)
    except ValueError as error:
        _refuse(str(error), "use minutes, hours, days or weeks: 30m, 2h, 1d, 1w")
    return _stated("expect_fresh", severity, column=column, within=within)


def never_falls(column: str, *, severity: Severity = "error") -> dict[str, Any]:
    """The sum of a column over the whole table is not less than after the batch before."""
    return _stated("expect_never_falls", severity, column=column)


def _stated(kind: str, severity: str, **kwargs: Any) -> dict[str, Any]:
    if severity not in ("error", "warning"):
        _refuse(f"there is no severity {severity!r}", "use 'error' or 'warning'")
    return {"type": kind, "kwargs": kwargs, **({"severity": severity} if severity != "error" else {})}


def _refuse(what: str, then: str) -> None:
    raise Refused.of(Kind.DECLARATION, what, "an expectation", then, wrong=what)
