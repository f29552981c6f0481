"""SQL that is grouped by key: where aggregates are allowed, and what cogroup, partial and combine ask of them."""

from __future__ import annotations

import pytest

from partitioning.authoring.flow import Flow
from partitioning.errors import Finding
from partitioning.model.streams import Column
from spark_jobs.sql.column_check import check_sql
from tests.checked_sql import FLIGHTS, PLANES, Build, columns, findings, pipeline

AGGREGATED: dict[str, Build] = {
    "aggregate": lambda flights, planes: flights.aggregate("max(dep_delay) AS late"),
    "cogroup": lambda flights, planes: flights.cogroup("max(dep_delay) AS late", (planes, "geomean(seats) AS seats")),
    "partial": lambda flights, planes: flights.partial("count(*) AS n", by="dep_delay", key_format="int").combine(
        "sum(n)::BIGINT AS n"
    ),
}


@pytest.mark.parametrize("case", AGGREGATED)
def test_aggregates_are_allowed_where_they_are_by_key(case: str) -> None:
    def build(flights: Flow, planes: Flow) -> None:
        made = AGGREGATED[case](flights, planes)
        assert isinstance(made, Flow)
        made.write("t")

    assert columns(build)


@pytest.mark.parametrize(
    "build",
    [
        lambda flights, planes: flights.filter("count(*) > 1"),
        lambda flights, planes: flights.select("max(dep_delay) AS late"),
        lambda flights, planes: flights.rekey("late", sql="max(dep_delay)", key_format="int"),
        lambda flights, planes: flights.join(planes, "sum(seats) AS seats"),
    ],
)
def test_aggregates_are_refused_where_they_are_not(build: Build) -> None:
    (finding,) = findings(build)
    assert finding.then == "use it in aggregate, by key"


def cogrouped(flights: str, planes: str) -> tuple[Finding, ...]:
    return findings(lambda f, p: f.filter("true").cogroup(flights, (p, planes), name="both").write("t"))


def test_a_cogroup_has_a_row_for_each_key_with_the_columns_of_all_flows() -> None:
    made = pipeline(lambda f, p: f.filter("true").cogroup("max(dep_delay) AS late", (p, "count(*) AS n")).write("t"))
    assert check_sql(made, [FLIGHTS, PLANES])["t"] == (
        Column("tailnum", "VARCHAR"),
        Column("late", "INTEGER"),
        Column("n", "BIGINT"),
    )


@pytest.mark.parametrize(
    ("flights", "planes", "unknown", "there"),
    [
        ("max(seats) AS a", "count(*) AS b", "seats", "flights.filter has tailnum, dep_delay"),
        ("max(planes.seats) AS a", "count(*) AS b", "planes.seats", "flights.filter has tailnum, dep_delay"),
        ("count(*) AS a", "max(dep_delay) AS b", "dep_delay", "planes has tailnum, seats"),
        ("count(*) AS a", "max(flights.dep_delay) AS b", "flights.dep_delay", "planes has tailnum, seats"),
        ("count(*) AS a", "max(flights.tailnum) AS b", "flights.tailnum", "planes has tailnum, seats"),
        ("count(*) AS a", "sum(a) AS b", "a", "planes has tailnum, seats"),
    ],
)
def test_the_expressions_of_a_cogroup_see_their_own_flow_only(
    flights: str, planes: str, unknown: str, there: str
) -> None:
    (finding,) = cogrouped(flights, planes)
    assert (finding.what, finding.where) == (f"there is no column {unknown!r}", "step 'both'")
    assert there in finding.then


@pytest.mark.parametrize("expression", ["seats", "count(*) AS n, seats", "*", "upper(tailnum) AS t"])
def test_a_cogroup_never_has_two_rows_of_a_key(expression: str) -> None:
    (finding,) = cogrouped("count(*) AS a", expression)
    assert finding.what == "a cogroup has one row for each key, and this would make more"
    assert finding.where == f"step 'both': {expression}"


@pytest.mark.parametrize(
    ("flights", "planes", "name"),
    [
        ("count(*) AS n", "count(*) AS n", "n"),
        ("count(*) AS n, max(dep_delay) AS N", "count(*) AS m", "n"),
        ("count(*) AS n", "count(*) AS tailnum", "tailnum"),
    ],
)
def test_two_columns_of_one_name_are_refused_in_a_cogroup(flights: str, planes: str, name: str) -> None:
    (finding,) = cogrouped(flights, planes)
    assert finding.what.partition(":")[0] == f"two columns are named {name!r}"


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("sum(n) AS n", "column 'n' is BIGINT in parts, HUGEINT in whole"),
        ("sum(n)::BIGINT AS m", "column 'n' is BIGINT in parts, missing in whole"),
        ("sum(n)::BIGINT AS n, 1 AS one", "column 'one' is missing in parts, INTEGER in whole"),
    ],
)
def test_a_combine_can_be_applied_to_its_own_results(expression: str, what: str) -> None:
    def build(flights: Flow, _: Flow) -> None:
        flights.partial("count(*) AS n", by="tailnum", name="parts").combine(expression, name="whole").write("t")

    assert findings(build)[0].what == what
    assert findings(build)[0].where == "step 'whole'"


def test_a_combine_may_give_its_columns_in_another_order() -> None:
    def build(flights: Flow, _: Flow) -> None:
        parts = flights.partial("count(*) AS n, max(dep_delay) AS late", by="tailnum")
        parts.combine("max(late) AS late, sum(n)::BIGINT AS n").write("t")

    assert columns(build) == ["tailnum", "late", "n"]
