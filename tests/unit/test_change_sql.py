"""Which aggregates keep totals, from which rows are taken back, and which keep the rows themselves."""

from __future__ import annotations

import pytest

from partitioning.authoring.change_sql import selecting, totals


@pytest.mark.parametrize(
    "columns",
    [
        "count(*) AS n",
        "count() AS n, count(note) AS notes",
        "COUNT(*)::INTEGER AS n, sum(amount::BIGINT)::BIGINT AS s",
        "sum((a + b)::INT) AS s",
        "sum(price::DECIMAL(9, 2)) AS paid",
        "sum(length(note)::INTEGER)::BIGINT AS letters",
        """sum("t"."amount"::BIGINT)::BIGINT AS "s" """,
    ],
)
def test_counts_and_sums_that_are_exact_keep_totals(columns: str) -> None:
    assert totals(columns) is not None


@pytest.mark.parametrize(
    "columns",
    [
        "sum(amount) AS s",
        "sum(amount::DOUBLE) AS s",
        "sum(a + b::INTEGER) AS s",
        "sum(a::DECIMAL) AS s",
        "sum(DISTINCT amount::BIGINT) AS s",
        "count(DISTINCT note) AS n",
        "sum(a::BIGINT) FILTER (WHERE b) AS s",
        "sum(a::BIGINT) + sum(b::BIGINT) AS s",
        "count(*) / 2 AS half",
        "count(*) AS n, max(amount) AS most",
        "count(*)",
        "avg(amount) AS mean",
        "list(amount ORDER BY amount) AS amounts",
    ],
)
def test_others_keep_the_rows(columns: str) -> None:
    assert totals(columns) is None


@pytest.mark.parametrize(
    ("columns", "selected"),
    [
        ("a, b", 'a, b, "@change"'),
        ("*", "*"),
        ("* EXCLUDE (a)", "* EXCLUDE (a)"),
        ("t.*, a + 1 AS b", "t.*, a + 1 AS b"),
        ("a * b AS c", 'a * b AS c, "@change"'),
    ],
)
def test_what_is_selected_of_changes_says_how_often(columns: str, selected: str) -> None:
    assert selecting(columns) == selected
