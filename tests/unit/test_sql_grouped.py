"""SQL that is grouped by key: where aggregates may be, what steps ask of them, and which keep totals."""

from __future__ import annotations

import re

import pytest

from partitioning.authoring.change_sql import selecting, totals
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
        ("max(seats) AS a", "count(*) AS b", "seats", "flights has tailnum, dep_delay"),
        ("max(planes.seats) AS a", "count(*) AS b", "planes.seats", "flights has tailnum, dep_delay"),
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


ONE, TWO = "1::BIGINT AS n", "1::BIGINT AS n, 1::BIGINT AS m"
MONEY, REAL, TEXT = "1.5::DECIMAL(18, 2) AS n", "1.5::DOUBLE AS n", "'a' AS s"
LIST = "[dep_delay] AS xs"


@pytest.mark.parametrize(
    ("select", "expression", "what"),
    [
        (ONE, "count(*) AS n", "another n: count(*) of those is not that of all records"),
        (ONE, "count(DISTINCT n) AS n", "another n: count DISTINCT of those is not that of all records"),
        (REAL, "round(avg(n), 2) AS n", "another n: avg of those is not that of all records"),
        (REAL, "sum(n) FILTER (n < 100) AS n", "another n: sum with FILTER of those is not that of all records"),
        (REAL, "round(sum(n), -3) AS n", "another n: what sum reads is not sum of n alone"),
        (REAL, "CASE WHEN sum(n) > 1e6 THEN 1e6 ELSE sum(n) END AS n", "what sum reads is not sum of n alone"),
        (REAL, "CASE WHEN count(*) > 20 THEN sum(n) ELSE 0 END AS n", "another n: count(*) of those is not"),
        (REAL, "TRY_CAST(sum(n) AS DOUBLE) AS n", "what sum reads is not sum of n alone"),
        (REAL, "sum(n ORDER BY n) AS n", "another n: sum ORDER BY of those is not that of all records"),
        (REAL, "sum(CASE WHEN n > 200 THEN 200 ELSE n END) AS n", "another n: what sum reads is no column"),
        ("1.5::FLOAT AS n", "sum(n)::FLOAT AS n", "n is DOUBLE before step 'total' casts it to FLOAT"),
        ("true AS n", "sum(n)::BOOLEAN AS n", "n is HUGEINT before step 'total' casts it to BOOLEAN"),
        (TWO, "sum(n)::BIGINT AS n, max(n) AS m", "another m: what max reads is not max of n alone"),
        (TWO, "sum(m)::BIGINT AS n, sum(n)::BIGINT AS m", "another m: what sum reads is not sum of n alone"),
        (TWO, "sum(n)::BIGINT AS n, n % 2 AS m", "another m: n is in no aggregate"),
        (TWO, "max(m) AS m, m AS n", "another n: m is in no aggregate"),
        (TWO, "arg_max(n, m) AS n, max(m) AS m", "another n: arg_max of several values of those is not that"),
        (TWO, "max(n, 2)[1] AS n, max(m) AS m", "another n: max of several values of those is not that"),
        (
            TEXT,
            "string_agg(s, ',' ORDER BY s) AS s",
            "another s: string_agg ORDER BY of several values of those is not",
        ),
        (TEXT, "any_value(s) AS s", "another s: any_value of those is not that of all records"),
        (LIST, "flatten(list(xs)) AS xs", "another xs: list of those is not that of all records"),
        (LIST, "flatten(list_sort(list(xs))) AS xs", "what list_sort() list reads is not list_sort() list of xs alone"),
        (LIST, "list_slice(list_sort(flatten(list(xs))), 2, 9) AS xs", "what list_sort() list reads is not"),
        ("{'n': 1::BIGINT} AS pair", "{'n': max(pair.n)} AS pair", "another pair: what max reads is no column"),
    ],
)
def test_a_combine_makes_nothing_else_of_its_own_results(select: str, expression: str, what: str) -> None:
    made = findings(
        lambda f, p: f.select(select).combine(expression, running=True, name="total").to_stream().write("t")
    )
    in_levels = findings(lambda f, p: f.select(select).combine(expression, fan_in=2, name="total").write("t"))
    assert any(what in finding.what for finding in made)
    assert made == in_levels
    # Once for a batch nothing is applied to its own results; and of all records there are none.
    assert columns(lambda f, p: f.select(select).combine(expression).write("t"))
    if not re.search(r"arg_max|any_value|flatten\(list\(", expression):
        assert columns(lambda f, p: f.select(select).kept().aggregate(expression).write("t", mode="upsert"))


@pytest.mark.parametrize(
    ("select", "expression"),
    [
        (f"{ONE}, 1.5::DOUBLE AS x, 0.5::DOUBLE AS mean", "round(sum(x) / sum(N), 2) AS mean, sum(n)::BIGINT AS n, "
         "sum(total.x) AS x"),
        (MONEY, "sum(n)::DECIMAL(18, 2) AS n"),
        (f"{ONE}, dep_delay % 2 AS odd", "sum(n)::BIGINT AS n, odd"),
        (f"{TEXT}, true AS late", "max(s) AS s, bool_or(late) AS late"),
        (f"{LIST}, 1 AS n", "list_slice(list_reverse_sort(flatten(list(xs))), 1, 10) AS xs, min(n) AS n"),
        (LIST, "list_sort(list_distinct(flatten(array_agg(xs))), 'DESC', 'NULLS LAST') AS xs"),
        ("{'at': dep_delay, 'n': 1} AS last", "max(last) AS last"),
        ("MAP {'a': 1} AS m, 'on'::ENUM('on', 'off') AS e", "max(m) AS m, min(e) AS e"),
    ],
)  # fmt: skip
def test_a_combine_of_aggregates_alone_goes_on_from_its_own_results(select: str, expression: str) -> None:
    def build(flights: Flow, _: Flow) -> None:
        flights.select(select, name="total").combine(expression, running=True).to_stream().write("t")

    assert columns(build)


@pytest.mark.parametrize(
    ("part", "expression", "what"),
    [
        (
            "count(DISTINCT dep_delay) AS n",
            "sum(n)::BIGINT AS n",
            "n is count DISTINCT in step 'parts', and sum of that",
        ),
        ("round(median(dep_delay)) AS n", "max(n) AS n", "n is no aggregate alone in step 'parts', and max of that is"),
        ("max(dep_delay)::BIGINT AS n", "sum(n)::BIGINT AS n", "n is max in step 'parts', and sum of that is not"),
        ("count(*) AS n", "max(n) AS n", "n is count(*) in step 'parts', and max of that is not that of all records"),
        ("coalesce(max(dep_delay), 0) AS n", "max(n) AS n", "n is no aggregate alone in step 'parts'"),
        ("sum(dep_delay) > 1000 AS n", "bool_or(n) AS n", "n is no aggregate alone in step 'parts'"),
        ("count(*) FILTER (dep_delay = 1) > 10 AS n", "bool_or(n) AS n", "n is no aggregate alone in step 'parts'"),
        (
            "sum(dep_delay / 3)::BIGINT AS n",
            "sum(n)::BIGINT AS n",
            "n is DOUBLE before step 'parts' casts it to BIGINT",
        ),
        ("max(tailnum)::INTEGER AS n", "max(n) AS n", "n is VARCHAR before step 'parts' casts it to INTEGER"),
        ("list_sort(list(DISTINCT hops)) AS n", "list_sort(flatten(list(n))) AS n", "n is no aggregate alone in step"),
        (
            "list_slice(list_sort(list(dep_delay)), 1, 2) AS n",
            "list_slice(list_sort(flatten(list(n))), 1, 3) AS n",
            "n is list_slice(1, 2) list_sort() list in step 'parts', and list_slice(1, 3) list_sort() list of that is",
        ),
        ("sum(dep_delay)::BIGINT AS n, count(*) AS m", "m, sum(n)::BIGINT AS n", "rows are combined by m, which step"),
        (
            "count(*) AS N, n + 1 AS m",
            "m, sum(n)::BIGINT AS n",
            "rows are combined by m, which step 'parts' makes by c",
        ),
    ],
)
def test_what_a_task_or_batch_made_of_its_records_adds_up(part: str, expression: str, what: str) -> None:
    (of_tasks,) = findings(lambda f, p: f.partial(part, by="tailnum", name="parts").combine(expression).write("t"))
    (of_batches,) = findings(
        lambda f, p: f.aggregate(part, name="parts").combine(expression, running=True).to_stream().write("t")
    )
    assert what in of_tasks.what
    assert of_tasks.what == of_batches.what
    # Of the keys of one batch they may be added up.
    names = "n, m" if " AS m" in part else "n"
    assert columns(
        lambda f, p: f.aggregate(part).rekey("g", sql="tailnum").select(names).combine(expression).write("t")
    )


@pytest.mark.parametrize(
    ("part", "expression"),
    [
        (
            "count(dep_delay) FILTER (dep_delay > 1) AS n, max(dep_delay + 1)::BIGINT AS m",
            "sum(n)::BIGINT AS n, max(m) AS m",
        ),
        ("sum(dep_delay * 1.5)::DECIMAL(18,1) AS n", "sum(n)::DECIMAL(18,1) AS n"),
        ("list(dep_delay) AS n", "list_slice(list_sort(flatten(list(n))), 1, 3) AS n"),
        ("list_sort(list_distinct(flatten(list(hops)))) AS n", "list_sort(list_distinct(flatten(list(n)))) AS n"),
        (
            "sum(dep_delay) / count(*) AS mean, count(*) AS n, dep_delay % 2 AS odd",
            "0.5::DOUBLE AS mean, odd, sum(n)::BIGINT AS n",
        ),
    ],
)
def test_what_adds_up_is_combined(part: str, expression: str) -> None:
    assert columns(lambda f, p: f.partial(part, by="tailnum", name="parts").combine(expression).write("t"))
    assert columns(lambda f, p: f.aggregate(part).combine(expression, running=True).to_stream().write("t"))


@pytest.mark.parametrize("again", ["aggregate", "partial", "combine"])
def test_what_batches_made_of_results_of_batches_adds_up_too(again: str) -> None:
    def build(flights: Flow, made: str) -> None:
        counted = flights.aggregate("count(*) AS n", name="counted")
        once_more = getattr(counted, again)(f"{made} AS n", **({"by": "tailnum"} if again == "partial" else {}))
        once_more.combine(f"{made} AS n", running=True).write("t", mode="upsert")

    what = "n is count(*) in step 'counted', and max of that is not that of all records"
    assert findings(lambda f, _: build(f, "max(n)"))[0].what == what
    assert columns(lambda f, _: build(f, "sum(n)::BIGINT"))


@pytest.mark.parametrize(
    ("part", "combine", "then"),
    [
        ("count(*) AS n", "count(n) AS n", "count before it, 1::BIGINT AS n of each record, and add up"),
        ("count(*) AS n", "count(*) AS n", "count before it, 1::BIGINT AS n of each record, and add up"),
        ("avg(dep_delay) AS n", "avg(n) AS n", "combine a sum and a count, each by sum, and divide them in a select"),
    ],
)
def test_what_is_wrong_of_any_results_is_said_once(part: str, combine: str, then: str) -> None:
    (finding,) = findings(lambda f, p: f.aggregate(part).combine(combine, running=True).to_stream().write("t"))
    assert finding.then.startswith(then)


def test_rows_are_not_combined_by_what_a_batch_made() -> None:
    def build(flights: Flow, by: str) -> None:
        counted = flights.aggregate("count(*) AS n", name="counted").rekey("by", sql=by, key_format="string")
        counted.combine("tailnum, sum(n)::BIGINT AS n", running=True).write("t", mode="upsert")

    (finding,) = findings(lambda f, _: build(f, "n::VARCHAR"))
    assert finding.what.startswith("rows are combined by n, which step 'counted' makes by count(*) of a part of them")
    assert columns(lambda f, _: build(f, "upper(tailnum)"))


def test_what_merges_give_a_combine_is_looked_at_too() -> None:
    def build(flights: Flow, _: Flow) -> None:
        late, early = (
            flights.filter(f"dep_delay {sign} 0", name=name) for sign, name in ((">", "late"), ("<", "early"))
        )
        both = late.aggregate("max(dep_delay)::BIGINT AS n").merge(early.aggregate("sum(dep_delay)::BIGINT AS n"))
        both.combine("sum(n)::BIGINT AS n", running=True).write("t", mode="upsert")

    (finding,) = findings(build)
    assert finding.what.startswith("n is max in step 'late.aggregate', and sum of that is not")


@pytest.mark.parametrize(
    ("expression", "then"),
    [
        ("list(n)", "list_sort(list(n))"),
        ("string_agg(n, ',')", "string_agg(n, ',' ORDER BY n)"),
        ("first(n)", "max(n)"),
        ("any_value(n)", "any_value(n ORDER BY seen, n)"),
        ("mode(n)", "mode(n ORDER BY n)"),
        ("arg_max(n, seen)", "arg_max(n, (seen, n))"),
        ("list({'n': n, 'seen': seen} ORDER BY seen)", "list({'n': n, 'seen': seen} ORDER BY seen DESC, n)"),
        ("json_group_array(n)", "to_json(list_sort(list(n)))"),
        ("approx_quantile(n, 0.5)", "quantile_cont(n, 0.5)"),
    ],
)
def test_what_changes_has_no_order(expression: str, then: str) -> None:
    def build(flights: Flow, expression: str) -> None:
        newest = flights.select("dep_delay AS n, dep_delay AS seen").latest("n").rekey("day", sql="tailnum")
        newest.aggregate(f"{expression} AS n").write("t", mode="upsert")

    (finding,) = findings(lambda f, _: build(f, expression))
    assert finding.what.startswith("the order of records decides what ")
    assert columns(lambda f, _: build(f, then))
    # Records have the order of their partitions, or the plan says that it may surprise.
    assert columns(
        lambda f, _: f.select("dep_delay AS n, dep_delay AS seen").aggregate(f"{expression} AS n").write("t")
    )


def test_a_combine_may_give_its_columns_in_another_order() -> None:
    def build(flights: Flow, _: Flow) -> None:
        parts = flights.partial("count(*) AS n, max(dep_delay) AS late", by="tailnum")
        parts.combine("max(late) AS late, sum(n)::BIGINT AS n").write("t")

    assert columns(build) == ["tailnum", "late", "n"]


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
