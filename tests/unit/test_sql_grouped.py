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


@pytest.mark.parametrize("order", ["1", "2 DESC", "'dep_delay'"])
def test_a_place_in_a_list_orders_nothing(order: str) -> None:
    (finding,) = findings(lambda f, p: f.aggregate(f"list(dep_delay ORDER BY {order}) AS delays").write("t"))
    assert (finding.what.partition(":")[0], finding.then) == ("ORDER BY a constant orders nothing", "name the column")
    assert columns(lambda f, p: f.aggregate("list(dep_delay ORDER BY dep_delay, 1 - dep_delay) AS delays").write("t"))


@pytest.mark.parametrize("by", ["1", "(2, 1)", "NULL"])
def test_a_constant_is_no_time_of_the_latest(by: str) -> None:
    (finding,) = findings(lambda f, p: f.latest(by).write("t", mode="upsert"))
    assert finding.then == "name the column that says which record is later"
    assert columns(lambda f, p: f.latest("(dep_delay, 1)").write("t", mode="upsert"))


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


@pytest.mark.parametrize(
    ("select", "expression", "what"),
    [
        ("1::BIGINT AS n", "count(*) AS n", "would count those"),
        ("1::BIGINT AS n", "count(n)::BIGINT AS n", "would count those"),
        ("dep_delay::BIGINT AS n", "count(DISTINCT n) AS n", "count of distinct values forgets which they were"),
        ("dep_delay::HUGEINT AS n", "sum(DISTINCT n) AS n", "sum of distinct values forgets which they were"),
        ("dep_delay::DOUBLE AS n", "round(avg(n), 2) AS n", "avg of those is not that of the records"),
        ("dep_delay::INTEGER AS n", "mode(n) AS n", "mode of those is not that of the records"),
    ],
)
def test_what_is_made_of_records_is_not_combined_with_what_was_made_of_others(
    select: str, expression: str, what: str
) -> None:
    (finding,) = findings(lambda f, p: f.select(select).combine(expression, running=True).to_stream().write("t"))
    assert what in finding.what
    # Once for a batch nothing is applied to its own results.
    assert columns(lambda f, p: f.select(select).combine(expression).write("t"))
    # What it says to do instead; which of several modes is meant, an aggregate of rows that change does not say.
    if "mode(" not in expression:
        assert columns(lambda f, p: f.select(select).kept().aggregate(expression).write("t", mode="upsert"))


def test_a_combine_that_counts_what_tasks_or_levels_counted_is_refused() -> None:
    (of_tasks,) = findings(lambda f, p: f.partial("count(*) AS n", by="tailnum").combine("count(*) AS n").write("t"))
    (of_levels,) = findings(lambda f, p: f.select("1::BIGINT AS n").combine("count(*) AS n", fan_in=2).write("t"))
    assert of_tasks.what == of_levels.what == "a combine is applied to its own results, and would count those"


@pytest.mark.parametrize(
    ("part", "expression", "what"),
    [
        ("count(DISTINCT dep_delay) AS n", "sum(n)::BIGINT AS n", "n is count of distinct values in one task or batch"),
        ("round(median(dep_delay)) AS n", "max(n) AS n", "n is median in one task or batch, and max of that is not"),
        (
            "min(dep_delay) AS n",
            "max(n) AS n",
            "n would be 9, not 1, if one task or batch had (dep_delay 1) and another",
        ),
        ("max(dep_delay)::BIGINT AS n", "sum(n)::BIGINT AS n", "n would be 10, not 9, if one task or batch had"),
        ("count(*) AS n", "max(n) AS n", "n would be 1, not 2, if one task or batch had a record and another a record"),
        ("abs(sum(dep_delay))::BIGINT AS n", "sum(n)::BIGINT AS n", "n would be 11, not 5, if one task or batch had"),
        ("coalesce(max(dep_delay), 0) AS n", "max(n) AS n", "n would be 0, not -1, if one task or batch had"),
        (
            "count(*) FILTER (dep_delay = 1) > 10 AS n",
            "bool_or(n) AS n",
            "False, not True, if one task or batch had 6 times (dep_delay 1) and another 6 times (dep_delay 1)",
        ),
        ("sum(dep_delay) > 1000 AS n", "bool_or(n) AS n", "n would be False, not True, if one task or batch had"),
        ("list(DISTINCT dep_delay) AS n", "flatten(list(n)) AS n", "n would be [1, 1, 2], not [1, 2], if one"),
    ],
)
def test_what_a_task_or_batch_made_of_its_records_does_not_add_up(part: str, expression: str, what: str) -> None:
    (of_tasks,) = findings(lambda f, p: f.partial(part, by="tailnum").combine(expression).write("t"))
    running = findings(lambda f, p: f.aggregate(part).combine(expression, running=True).to_stream().write("t"))
    assert what in of_tasks.what
    assert [finding.what for finding in running] == [of_tasks.what]
    # Of the keys of one batch they may be added up.
    assert columns(lambda f, p: f.aggregate(part).rekey("g", sql="tailnum").select("n").combine(expression).write("t"))


ONE, TWO = "1::BIGINT AS n", "1::BIGINT AS n, 1::BIGINT AS m"
MONEY, REAL, TEXT = "1.5::DECIMAL(18, 2) AS n", "1.5::DOUBLE AS n", "'a' AS s"


@pytest.mark.parametrize(
    ("select", "expression", "what"),
    [
        (TWO, "sum(n)::BIGINT AS n, max(n) AS m", "m would be"),
        (TWO, "max(n) AS m, max(m) AS n", "m would be 5, not 9, if (n 9) came first and (n 5) later"),
        (TWO, "max(n) AS n, max(n) - min(n) AS m", "m would be"),
        (TWO, "sum(n)::BIGINT AS n, (sum(m * n) / sum(n))::BIGINT AS m", "m would be"),
        (TWO, "arg_max(n, m) AS n, max(m) AS m", "(n NULL, m 9) came first"),
        (ONE, "sum(n + 1)::BIGINT AS n", "n would be"),
        (ONE, "sum(CASE WHEN n > 3 THEN 1 END)::BIGINT AS n", "n would be"),
        (ONE, "max(-n) AS n", "n would be"),
        (ONE, "max(n) + 1 AS n", "n would be"),
        (ONE, "abs(sum(n) + 1)::BIGINT AS n", "n would be"),
        (ONE, "greatest(sum(n), 3)::BIGINT AS n", "n would be"),
        (ONE, "least(sum(n), 100000)::BIGINT AS n", "n would be"),
        (ONE, "(coalesce(sum(n), 0) + 1)::BIGINT AS n", "n would be"),
        (ONE, "coalesce(sum(n), 5)::BIGINT AS n", "n would be 14, not 9, if (n NULL) came first and (n 9) later"),
        (ONE, "coalesce(max(n), 0) AS n", "n would be 0, not -4, if (n NULL) came first and (n -4) and (n -9) later"),
        (ONE, "sum(n::BOOLEAN)::BIGINT AS n", "n would be"),
        (REAL, "round(sum(n) * 100) / 100 AS n", "n would be 8.07, not 8.06"),
        (REAL, "geomean(n) AS n", "n would be"),
        (REAL, "sum(n) FILTER (n < 100) AS n", "n would be"),
        (REAL, "sum(CASE WHEN n > 200 THEN 200 ELSE n END) AS n", "n would be"),
        (
            REAL,
            "CASE WHEN count(*) > 20 THEN sum(n) ELSE 0 END AS n",
            "n would be 0, not 22, if 11 times (n 1) came first and 11 times (n 1) later",
        ),
        (TEXT, "string_agg(s, ',' ORDER BY s) AS s", "s would be"),
        (TEXT, "string_agg(s, ',') AS s", "the order of records decides whether s is"),
        (TEXT, "any_value(s) AS s", "the order of records decides whether s is"),
        (TWO, "first(n) AS n, last(m) AS m", "the order of records decides whether m is"),
        ("[dep_delay] AS xs", "flatten(list(xs)) AS xs", "the order of records decides whether xs is"),
        (TEXT, "lower(max(s)) AS s", "s would be"),
        (TEXT, "trim(max(s)) AS s", "s would be"),
        (REAL, "round(sum(n), 6) AS n", "n would be"),
        (REAL, "round(sum(n), 2) AS n", "n would be"),
        (
            TEXT,
            "CASE WHEN max(s) = 'closed' THEN 'x' ELSE max(s) END AS s",
            "s would be x, not v",
        ),
        ("TIMESTAMP '2026-01-01' AS t", "max(t) + INTERVAL 1 DAY AS t", "t would be"),
        ("false AS several", "count(*) > 2 AS several", "if a record and a record came first and a record later"),
        ("{'n': 1::BIGINT} AS pair", "{'n': max(pair.n) + 1} AS pair", "pair would be"),
        (TEXT, "strftime(max(strptime(s, '%d.%m.%Y')) + INTERVAL 1 DAY, '%d.%m.%Y') AS s", "nobody knows whether"),
    ],
)
def test_a_combine_does_not_make_something_else_of_its_own_results(select: str, expression: str, what: str) -> None:
    def build(flights: Flow, _: Flow) -> None:
        flights.select(select).combine(expression, running=True).write("t", mode="upsert")

    assert any(what in finding.what for finding in findings(build))
    assert columns(lambda f, p: f.select(select).combine(expression).write("t"))


@pytest.mark.parametrize(
    ("select", "expression"),
    [
        (TWO, "coalesce(sum(coalesce(n, 0)), 0)::BIGINT AS n, max(m) AS m"),
        (TWO, "max(abs(n)) AS n, min(greatest(m, 1)) AS m"),
        (TWO, "arg_max_null(n, m) AS n, max(m) AS m"),
        (f"{REAL}, 1.5::DOUBLE AS m", "sum(n) AS n, sum(m * n) / sum(n) AS m"),
        (ONE, "greatest(max(n), 3) AS n"),
        (ONE, "(sum(n) FILTER (n > 2))::BIGINT AS n"),
        (MONEY, "sum(n)::DECIMAL(18, 2) AS n"),
        (MONEY, "(round(sum(n) * 100) / 100)::DECIMAL(18, 2) AS n"),
        (TEXT, "max(s::TIMESTAMP)::VARCHAR AS s"),
        (TEXT, "CASE WHEN bool_or(s = 'closed') THEN 'closed' ELSE 'open' END AS s"),
        ("TIMESTAMP '2026-01-01' AS t", "date_trunc('month', max(t)) AS t"),
        ("[dep_delay] AS xs", "list_slice(list_reverse_sort(flatten(list(xs))), 1, 10) AS xs"),
        ("[dep_delay] AS xs", "list_sort(list_distinct(flatten(list(xs)))) AS xs"),
        ("{'n': 1::BIGINT, 'x': 1.5} AS pair", "{'n': sum(pair.n)::BIGINT, 'x': sum(pair.x)::DECIMAL(2,1)} AS pair"),
        ("MAP {'a': 1} AS m, 'on'::ENUM('on', 'off') AS e", "max(m) AS m, min(e) AS e"),
    ],
)
def test_a_combine_makes_the_same_of_its_own_results(select: str, expression: str) -> None:
    assert columns(lambda f, p: f.select(select).combine(expression, running=True).write("t", mode="upsert"))


def test_what_merges_give_a_combine_is_looked_at_too() -> None:
    def build(flights: Flow, _: Flow) -> None:
        late, early = (
            flights.filter(f"dep_delay {sign} 0", name=name) for sign, name in ((">", "late"), ("<", "early"))
        )
        both = late.aggregate("max(dep_delay)::BIGINT AS n").merge(early.aggregate("max(dep_delay)::BIGINT AS n"))
        both.combine("sum(n)::BIGINT AS n", running=True).write("t", mode="upsert")

    assert {finding.what.partition(",")[0] for finding in findings(build)} == {"n would be 10"}


def test_a_mean_is_combined_of_sums_and_counts() -> None:
    mean = "sum(mean * n) / sum(n) AS mean, sum(n)::BIGINT AS n"
    parts = "avg(dep_delay) AS mean, count(dep_delay) AS n"
    assert columns(lambda f, p: f.partial(parts, by="tailnum").combine(mean).write("t"))
    # Records without a value are no part of the mean.
    of_all = parts.replace("count(dep_delay)", "count(*)")
    (finding,) = findings(lambda f, p: f.partial(of_all, by="tailnum").combine(mean).write("t"))
    assert "if one task or batch had (dep_delay 7) and another (dep_delay NULL)" in finding.what


def test_a_combine_of_parts_does_not_exchange_columns() -> None:
    parts, exchanged = "sum(dep_delay)::BIGINT AS n, count(*) AS m", "sum(m)::BIGINT AS n, sum(n)::BIGINT AS m"
    found = findings(lambda f, p: f.partial(parts, by="tailnum").combine(exchanged).write("t"))
    assert {finding.what.partition(" would")[0] for finding in found} == {
        "a combine is applied to its own results, and n",
        "a combine is applied to its own results, and m",
    }


@pytest.mark.parametrize("expression", ["list(n)", "string_agg(n, ',')", "first(n)", "any_value(n)", "mode(n)"])
def test_what_changes_has_no_order(expression: str) -> None:
    def build(flights: Flow, expression: str) -> None:
        newest = flights.select("dep_delay AS n").latest("n").rekey("day", sql="tailnum")
        newest.aggregate(f"{expression} AS n").write("t", mode="upsert")

    (finding,) = findings(lambda f, _: build(f, expression))
    assert finding.what.startswith("the order of records decides whether n is")
    assert columns(lambda f, _: build(f, "list_sort(list(n))"))
    # Records have the order of their partitions, or the plan says that it may surprise.
    assert columns(lambda f, _: f.select("dep_delay AS n").aggregate(f"{expression} AS n").write("t"))


def test_a_combine_may_look_whether_there_were_several() -> None:
    several = "bool_or(several) OR count(*) > 1 AS several"
    assert columns(lambda f, p: f.select("false AS several").combine(several, running=True).to_stream().write("t"))


def test_a_combine_may_give_its_columns_in_another_order() -> None:
    def build(flights: Flow, _: Flow) -> None:
        parts = flights.partial("count(*) AS n, max(dep_delay) AS late", by="tailnum")
        parts.combine("max(late) AS late, sum(n)::BIGINT AS n").write("t")

    assert columns(build) == ["tailnum", "late", "n"]
