"""Whether a combine gives the same in any order and groups: what is found, and what it says of it."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from coset.testing import check_combine
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused

ROWS = [{"k": f"k{number % 7}" if number % 5 else None, "x": (number * 37 % 101) / 7} for number in range(80)]


def stream() -> Flow:
    return Pipeline("p", source="s3://landing/topics").stream("s", key="k", partitions=3)


def combined(partial: str, combine: str, by: str | None = None) -> Flow:
    return stream().partial(partial, by=by, name="parts").combine(combine, name="whole")


def said(flow: Flow, **how: int) -> str:
    with pytest.raises(Refused) as refused:
        check_combine(flow, ROWS, **how)
    return str(refused.value)


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize(
    ("partial", "combine"),
    [
        ("sum(x) AS total, count(*) AS n", "sum(total) AS total, sum(n)::BIGINT AS n"),
        ("min(x) AS least, max(k) AS last", "min(least) AS least, max(last) AS last"),
        ("bool_or(x > 14) AS high", "bool_or(high) AS high"),
        ("{'n': count(*), 'x': sum(x)} AS pair", "{'n': sum(pair.n)::BIGINT, 'x': sum(pair.x)} AS pair"),
    ],
)
def test_what_gives_the_same_however_it_is_combined_passes(partial: str, combine: str, by: str | None) -> None:
    check_combine(combined(partial, combine, by), ROWS)
    check_combine(combined(partial, combine, by), pa.Table.from_pylist(ROWS), seed=1)


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize(
    ("partial", "combine"),
    [
        ("count(*) AS n", "count(*) AS n"),
        ("avg(x) AS mean", "avg(mean) AS mean"),
        ("first(x) AS x", "first(x) AS x"),
        ("sum(x) AS x", "max(x) AS x"),
        ("sum(x) AS x", "sum(x) + 1 AS x"),
        ("list(x) AS xs", "flatten(list(xs)) AS xs"),
        ("max(x) AS x", "max(x) - min(x) AS x"),
    ],
    ids=["counts counted", "means", "the first", "another aggregate", "more each time", "order", "not its own input"],
)
def test_what_depends_on_groups_or_order_is_found(partial: str, combine: str, by: str | None) -> None:
    assert "step 'whole' on the records" in said(combined(partial, combine, by))


def test_a_combine_that_follows_no_partial_step_is_tried_on_its_own_input() -> None:
    rekeyed = stream().rekey("j", sql="k").select("x")
    check_combine(rekeyed.combine("sum(x) AS x", name="right"), [{"j": row["k"], "x": row["x"]} for row in ROWS])
    with pytest.raises(Refused, match="step 'wrong'"):
        check_combine(rekeyed.combine("avg(x) AS x", name="wrong"), [{"j": "a", "x": row["x"]} for row in ROWS])


def test_the_grouping_that_differs_is_told_with_few_records() -> None:
    text = said(combined("count(*) AS n", "count(*) AS n"))
    assert re.match(r"combined as \([^;]*\) it gives \(\d,\), and of all at once \(1,\)\n", text)
    assert text.count("'k': ") <= 4
    assert said(combined("count(*) AS n", "count(*) AS n")) == text
    assert said(combined("count(*) AS n", "count(*) AS n"), seed=1) != text


def test_sums_of_floating_point_numbers_may_differ_in_their_last_digits_only() -> None:
    drifting = "sum(x) * (1 + 1e-6) AS x"
    assert "it gives" in said(combined("sum(x) AS x", drifting))


def test_what_is_no_combine_or_cannot_be_run_is_refused() -> None:
    with pytest.raises(Refused, match=r"s\.filter is no combine"):
        check_combine(stream().filter("x > 0"), ROWS)
    with pytest.raises(Refused, match=r"SQL failed: Binder Error.*y"):
        check_combine(combined("sum(y) AS y", "sum(y) AS y"), ROWS)
