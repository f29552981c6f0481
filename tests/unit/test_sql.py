"""SQL: what an expression may do, what a result holds, what a task has to read, what the database can reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.model.placement import KEY_FORMATS
from partitioning.model.plan import PlannedStream, PlannedWrite, Stage
from partitioning.model.streams import Column, Discovered
from spark_jobs.sql.check import KEY_TYPES, check, columns_needed
from spark_jobs.sql.database import connect, create_views

FLIGHTS = Discovered(
    "flights",
    (
        Column("tailnum", "VARCHAR"),
        Column("dep_delay", "INTEGER"),
        Column("hops", "VARCHAR[]"),
        Column("place", "STRUCT(gate INTEGER)"),
        Column("_offset", "BIGINT"),
    ),
    (),
)
PLANES = Discovered(
    "planes", (Column("tailnum", "VARCHAR"), Column("seats", "INTEGER"), Column("_offset", "BIGINT")), ()
)

Build = Callable[[Flow, Flow], object]


def pipeline(build: Build) -> Pipeline:
    made = Pipeline("p", source="s3://landing/topics")
    build(
        made.stream("flights", key="tailnum", partitions=12),
        made.table("planes", key="tailnum", partitions=8),
    )
    return made


def columns(build: Build, table: str = "t") -> list[str]:
    return [column.name for column in check(pipeline(build), [FLIGHTS, PLANES])[table]]


def findings(build: Build) -> tuple[Finding, ...]:
    with pytest.raises(Refused) as caught:
        check(pipeline(build), [FLIGHTS, PLANES])
    return caught.value.findings


def needed(build: Build, stream: Discovered) -> tuple[str, ...]:
    made = pipeline(build)
    results = check(made, [FLIGHTS, PLANES])
    writes = tuple(PlannedWrite(write, results[write.table]) for write in made.writes)
    # As far as the columns go, one stage of it all.
    stage = Stage("all", (), made.steps, writes, "cogroup", 1, "", ())
    declared = next(each for each in made.streams if each.name == stream.stream)
    return columns_needed(stage, PlannedStream(declared, stream.columns, ()))


def test_a_result_has_the_columns_that_duckdb_gives_it() -> None:
    made = pipeline(
        lambda flights, planes: (
            flights.join(planes, "seats, dep_delay")
            .aggregate("count(*) AS flights, sum(seats) AS seats, avg(dep_delay) AS delay", by="seats > 100 AS large")
            .write("t")
        )
    )
    assert check(made, [FLIGHTS, PLANES]) == {
        "t": (
            Column("tailnum", "VARCHAR"),
            Column("large", "BOOLEAN"),
            Column("flights", "BIGINT"),
            Column("seats", "HUGEINT"),
            Column("delay", "DOUBLE"),
        )
    }


def test_an_unknown_column_is_named_with_its_step_and_the_columns_there_are() -> None:
    (finding,) = findings(lambda flights, _: flights.filter("dep_dela > 3", name="late").write("t"))
    assert finding.what == "there is no column 'dep_dela'"
    assert finding.where == "step 'late'"
    assert finding.then == "correct the name; flights has tailnum, dep_delay, hops, place, _offset, _partition"


def test_each_unknown_column_of_each_step_is_a_finding() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("dep_dela > 3 AND nope IS NULL").write("t")
        planes.select("planes.sets").write("u")

    assert [finding.what for finding in findings(build)] == [
        "there is no column 'dep_dela'",
        "there is no column 'nope'",
        "there is no column 'planes.sets'",
    ]


def test_a_column_that_the_other_side_of_a_join_has_is_unknown_under_the_wrong_alias() -> None:
    (finding,) = findings(lambda flights, planes: flights.join(planes, "flights.seats").write("t"))
    assert finding.what == "there is no column 'flights.seats'"
    assert "planes has tailnum, seats" in finding.then


def test_steps_after_a_wrong_one_add_no_findings() -> None:
    assert len(findings(lambda flights, _: flights.filter("nope").select("dep_delay").write("t"))) == 1


@pytest.mark.parametrize(
    "expression",
    [
        "dep_delay AS late, late + 1 AS later",
        "[hop || '!' FOR hop IN hops] AS hops2",
        "list_transform(hops, lambda hop: upper(hop)) AS hops2",
        "list_sum([1, 2]) AS three",
        "place.gate",
        "flights.place.gate",
        "CASE WHEN dep_delay < 0 THEN error('early') ELSE dep_delay END AS delay",
        "unnest(hops) AS hop",
        "DEP_DELAY + 1 AS more",
        "dep_delay -- a comment\n, hops",
        "dep_delay AS délai /* a comment */",
    ],
)
def test_an_expression_over_one_record_is_allowed(expression: str) -> None:
    assert columns(lambda flights, _: flights.select(expression).write("t"))[0] == "tailnum"


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("(SELECT max(seats) FROM planes) AS most", "a subquery would see"),
        ("EXISTS (FROM planes) AS any", "a subquery would see"),
        ("dep_delay IN (SELECT seats FROM planes) AS found", "a subquery would see"),
        ("row_number() OVER () AS n", "a window function would see"),
        ("lag(dep_delay) OVER (ORDER BY dep_delay) AS before", "a window function would see"),
        ("sum(dep_delay) AS total", "sum would see the records of one task only"),
        ("count(*) AS n", "count_star would see"),
        ("geomean(dep_delay) AS mean", "avg would see"),
        ("wavg(dep_delay, 2) AS mean", "sum would see"),
        ("random() AS r", "random gives another result"),
        ("now() AS at", "now gives another result"),
        ("current_timestamp AS at", "current_timestamp gives another result"),
        ("ago(INTERVAL 1 day) AS at", "current_timestamp gives another result"),
        ("#1 AS one", "#1 names a column by its place"),
        ("flights AS all_of_it", "flights names a whole record"),
        ("seats FROM planes", "FROM is no part of an expression"),
        ("dep_delay WHERE true", "WHERE is no part of an expression"),
        ("DISTINCT dep_delay", "ORDER BY, LIMIT or DISTINCT is no part"),
        ("dep_delay LIMIT 1", "ORDER BY, LIMIT or DISTINCT is no part"),
        ("dep_delay ORDER BY 1", "ORDER BY, LIMIT or DISTINCT is no part"),
        ("dep_delay GROUP BY dep_delay", "GROUP BY is no part"),
        ("dep_delay GROUP BY ALL", "GROUP BY ALL is no part"),
        ("dep_delay USING SAMPLE 10%", "USING SAMPLE is no part"),
        ("dep_delay UNION SELECT 1", "this is more than expressions"),
        ("dep_delay; DROP TABLE flights", "Only SELECT statements"),
        ("dep_delay; SELECT 1", "this is more than expressions"),
        ("dep_delay +", "syntax error"),
        ("dep_delay /*", "unterminated /* comment"),
        ("dep_delay -- late", "a comment at the end hides what follows it"),
        ("", "SELECT clause without selection list"),
    ],
)
def test_an_expression_whose_result_depends_on_the_tasks_is_refused(expression: str, what: str) -> None:
    found = findings(lambda flights, _: flights.select(expression, name="mine").write("t"))
    assert any(what in finding.what for finding in found)
    assert all("step 'mine'" in finding.where for finding in found)


@pytest.mark.parametrize("condition", ["dep_delay > 0 LIMIT 3", "dep_delay > 0 GROUP BY ALL", "max(dep_delay) > 0"])
def test_a_filter_cannot_smuggle_in_more_than_a_condition(condition: str) -> None:
    assert findings(lambda flights, _: flights.filter(condition).write("t"))


def test_a_join_condition_is_checked_too() -> None:
    (finding,) = findings(lambda flights, planes: flights.join(planes, "seats", on="seats > random()").write("t"))
    assert finding.where == "step 'flights.join': seats > random()"


def test_subqueries_and_windows_are_refused_in_an_aggregate_as_well() -> None:
    found = findings(
        lambda flights, _: flights.aggregate("max((SELECT 1)) AS a, sum(count(*)) OVER () AS b").write("t")
    )
    assert {finding.what.split(" would")[0] for finding in found} == {"a subquery", "a window function"}


def test_what_duckdb_does_not_accept_is_a_finding_in_its_words() -> None:
    (finding,) = findings(lambda flights, _: flights.select("date_trunc('day', dep_delay) AS day").write("t"))
    assert finding.what.startswith("No function matches the given name and argument types 'date_trunc")


@pytest.mark.parametrize("expression", ["dep_delay, dep_delay", "dep_delay AS TAILNUM", "*"])
def test_two_columns_of_one_name_are_refused(expression: str) -> None:
    (finding,) = findings(lambda flights, _: flights.select(expression).write("t"))
    assert "two columns are named" in finding.what


def test_a_stream_with_a_column_of_a_virtual_name_is_refused() -> None:
    made = pipeline(lambda flights, planes: (flights.write("t"), planes.write("u")))
    odd = Discovered("flights", (*FLIGHTS.columns, Column("_Partition", "VARCHAR")), ())
    with pytest.raises(Refused, match="two columns are named '_partition'"):
        check(made, [odd, PLANES])


def test_a_result_column_needs_a_plain_name() -> None:
    (finding,) = findings(lambda flights, _: flights.aggregate("avg(dep_delay)").write("t"))
    assert "'avg(dep_delay)'" in finding.what
    assert finding.then == "give it a plain name with AS"


def test_lineage_columns_must_not_be_there_already() -> None:
    def build(lineage: bool) -> Build:
        return lambda flights, _: flights.select("dep_delay AS _task, 1 AS _batch").write("t", lineage=lineage)

    assert len(findings(build(True))) == 2
    assert columns(build(False)) == ["tailnum", "_task", "_batch"]


def test_partition_and_offset_are_in_a_result_only_if_asked_for() -> None:
    assert columns(lambda flights, _: flights.write("t")) == ["tailnum", "dep_delay", "hops", "place"]
    assert columns(lambda flights, _: flights.filter("true").write("t")) == ["tailnum", "dep_delay", "hops", "place"]
    assert columns(lambda flights, _: flights.select("_partition, _offset").write("t")) == [
        "tailnum",
        "_partition",
        "_offset",
    ]


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
    assert check(made, [FLIGHTS, PLANES])["t"] == (
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
    assert finding.what == f"two columns are named {name!r}"


def test_merged_flows_need_the_same_columns_of_the_same_types() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        named = planes.select("seats::VARCHAR AS hops, seats AS dep_delay, 1 AS doors", name="named")
        flights.merge(named, name="all").filter("dep_delay > 0").write("t")

    assert [(finding.what, finding.where) for finding in findings(build)] == [
        ("column 'hops' is VARCHAR[] in flights, VARCHAR in named", "step 'all'"),
        ("column 'place' is STRUCT(gate INTEGER) in flights, missing in named", "step 'all'"),
        ("column 'doors' is missing in flights, INTEGER in named", "step 'all'"),
    ]


def test_where_records_lie_is_in_the_way_of_no_merge_and_in_no_result() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        counted = planes.aggregate("count(*) AS n", name="counted")
        other = planes.pipeline.stream("other", key="tailnum", partitions=3, offset="at")
        other.merge(counted, name="all").write("t")
        flights.merge(flights.filter("true"), name="both").select("_offset, _partition").write("u")

    other = Discovered("other", (Column("tailnum", "VARCHAR"), Column("n", "BIGINT"), Column("at", "BIGINT")), ())
    found = check(pipeline(build), [FLIGHTS, PLANES, other])
    assert [[column.name for column in found[table]] for table in ("t", "u")] == [
        ["tailnum", "n"],
        ["tailnum", "_offset", "_partition"],
    ]


@pytest.mark.parametrize("named", ["_offset", "a._offset", "_OFFSET + 1"])
def test_where_records_lie_cannot_be_asked_for_after_a_merge_in_which_some_have_no_place(named: str) -> None:
    def build(flights: Flow, planes: Flow) -> None:
        counted = planes.aggregate("max(seats) AS seats")
        planes.filter("true", name="a").merge(counted).filter("true").select(f"{named} AS at", name="late").write("t")
        flights.write("u")

    (finding,) = findings(build)
    assert finding.what.endswith("is not in all flows that were merged")
    assert finding.then == "select it in each of them before"


def test_a_place_that_one_of_the_merged_flows_selected_is_a_column_that_the_others_lack() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        planes.select("seats, _offset").merge(planes.filter("true"), name="all").write("t")
        flights.write("u")

    (finding,) = findings(build)
    assert finding.what == "column '_offset' is BIGINT in planes.select, missing in planes.filter"


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


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda f, p: f.rekey("origin", name="new"), "there is no column 'origin'"),
        (lambda f, p: f.rekey("Tailnum", name="new"), "there is no column 'Tailnum'"),
        (
            lambda f, p: f.partial("1 AS one", by="origin", name="new").combine("1 AS one"),
            "there is no column 'origin'",
        ),
        (
            lambda f, p: f.rekey("dep_delay", name="new"),
            "key column 'dep_delay' is INTEGER, not VARCHAR under key format 'string'",
        ),
        (
            lambda f, p: f.rekey("gate", sql="place.gate", key_format="long", name="new"),
            "key column 'gate' is INTEGER, not BIGINT under key format 'long'",
        ),
        (
            lambda f, p: f.rekey("tailnum", key_format="bytes", name="new"),
            "key column 'tailnum' is VARCHAR, not BLOB under key format 'bytes'",
        ),
        (lambda f, p: f.rekey("tailnum", sql="'N' || tailnum", name="new"), "two columns are named 'tailnum'"),
        (
            lambda f, p: f.process(
                "math:fsum", {"tailnum": "VARCHAR", "n": "INT"}, key="n", key_format="long", name="new"
            ),
            "key column 'n' is INTEGER, not BIGINT under key format 'long'",
        ),
    ],
)
def test_a_new_key_is_a_column_of_its_format(build: Build, what: str) -> None:
    (finding,) = findings(build)
    assert (finding.what, finding.where) == (what, "step 'new'")


def test_a_rekey_to_a_missing_column_names_those_there_are() -> None:
    (finding,) = findings(lambda flights, _: flights.rekey("origin").write("t"))
    assert finding.then == "correct the name; flights has tailnum, dep_delay, hops, place, _offset, _partition"


def test_a_new_key_of_each_format_can_be_made() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        for key_format, (kind, *_) in KEY_TYPES.items():
            made = flights.rekey(key_format, sql=f"NULL::{kind}", key_format=key_format, name=f"by_{key_format}")
            made.select("dep_delay").write(key_format)

    assert set(KEY_TYPES) == set(KEY_FORMATS)
    assert len(check(pipeline(build), [FLIGHTS, PLANES])) == len(KEY_TYPES)


def processed(function: str, **declared: str) -> Build:
    def build(flights: Flow, planes: Flow) -> None:
        made = flights.process(function, {"tailnum": "VARCHAR", **declared}, name="scored")
        made.filter("score > 0").join(planes, "score, seats").write("t")

    return build


def test_what_a_function_is_declared_to_give_is_a_relation_from_then_on() -> None:
    made = pipeline(processed("math:fsum", score="double precision"))
    assert check(made, [FLIGHTS, PLANES])["t"] == (
        Column("tailnum", "VARCHAR"),
        Column("score", "DOUBLE"),
        Column("seats", "INTEGER"),
    )


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (processed("shop.scores:score", score="DOUBLE"), "'shop.scores:score' cannot be imported: No module"),
        (processed("math:score", score="DOUBLE"), "'math:score' cannot be imported: module 'math' has no attribute"),
        (processed("math:pi", score="DOUBLE"), "math:pi is no function"),
        (processed("math:fsum", score="DUBLE"), "column 'score' is declared as 'DUBLE', which is no DuckDB type"),
        (processed("math:fsum", score="DOUBLE", Score="DOUBLE"), "two columns are named 'score'"),
        (lambda f, p: f.repartition(placement="shop.codecs:country").write("t"), "'shop.codecs:country' cannot be"),
    ],
)
def test_a_function_must_be_there_and_its_columns_of_some_type(build: Build, what: str) -> None:
    (finding,) = findings(build)
    assert finding.what.startswith(what)


def test_a_streams_placement_function_must_be_there() -> None:
    made = Pipeline("p", source="s3://landing/topics")
    made.stream("flights", key="tailnum", partitions=12, placement="shop.codecs:country").write("t")
    with pytest.raises(Refused, match="cannot be imported") as refusal:
        check(made, [FLIGHTS])
    assert refusal.value.findings[0].where == "stream 'flights'"


def test_a_function_is_given_all_columns() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.select("dep_delay").process("math:fsum", {"tailnum": "VARCHAR"}).write("t")
        planes.write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "hops", "place", "_offset")


def test_merged_flows_need_what_is_named_before_and_after() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        late = flights.filter("dep_delay > 0")
        late.merge(
            flights, planes.select("seats AS dep_delay, NULL::VARCHAR[] AS hops, NULL::STRUCT(gate INTEGER) AS place")
        ).aggregate("max(place.gate) AS gate").write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "place")


def test_a_new_key_is_needed() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.rekey("dep_delay", key_format="int").aggregate("count(*) AS n").write("t")
        planes.rekey("double", sql="2 * seats", key_format="int").aggregate("count(*) AS n").write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_both_sides_of_a_cogroup_need_the_columns_of_their_aggregates() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.cogroup("max(dep_delay) AS late", (planes, "sum(seats) AS seats")).write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_only_columns_that_are_named_are_needed_and_the_key() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("DEP_DELAY > 0").join(planes, "seats").aggregate("sum(seats) AS seats").write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_a_star_needs_all_columns() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.join(planes, "flights.* EXCLUDE (tailnum)").write("t")

    assert needed(build, FLIGHTS) == tuple(column.name for column in FLIGHTS.columns)


def test_counting_rows_needs_the_key_only() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.aggregate("count(*) AS n").write("t")
        planes.write("u")

    assert needed(build, FLIGHTS) == ("tailnum",)


def test_fields_of_a_record_need_its_column() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.select("place.gate AS gate").write("t")
        planes.write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "place")


def test_what_a_filter_passes_on_to_a_table_is_needed() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("dep_delay > 0").write("t")
        planes.write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "hops", "place")


def test_the_columns_needed_are_enough_to_make_the_views() -> None:
    made = pipeline(lambda flights, planes: flights.filter("dep_delay > 0").join(planes, "seats").write("t"))
    with connect() as connection:
        connection.execute("CREATE TABLE flights AS SELECT 'N1' AS tailnum, 5 AS dep_delay")
        connection.execute("CREATE TABLE planes AS SELECT 'N1' AS tailnum, 100 AS seats")
        create_views(connection, made.steps)
        assert connection.execute('FROM "flights.filter.join"').fetchall() == [("N1", 100)]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM '/etc/passwd'",
        "FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '9GB'",
        "SET enable_external_access = true",
        "FROM outside",
    ],
)
def test_the_database_can_reach_nothing_and_stays_so(statement: str) -> None:
    outside = duckdb.sql("SELECT 1")  # noqa: F841
    with connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)


def test_local_time_is_utc_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with connect() as connection:
        query = "SELECT date_part('hour', TIMESTAMPTZ '2013-01-01 10:00:00+00')"
        assert connection.execute(query).fetchone() == (10,)


# Sorting this takes more than the memory that is given.
LARGE = "SELECT count(*) FROM (SELECT md5(range::VARCHAR) AS m, range FROM range(2000000) ORDER BY m)"


def test_what_does_not_fit_into_memory_goes_to_the_temporary_folder(tmp_path: Path) -> None:
    with connect("60MB", tmp_path) as connection:
        connection.execute(f"CREATE TABLE sorted AS {LARGE.replace('count(*)', '*')}")
        assert connection.execute("SELECT count(*) FROM sorted").fetchone() == (2_000_000,)
        assert any(tmp_path.iterdir())


def test_without_a_temporary_folder_too_little_memory_is_an_error() -> None:
    with connect("60MB") as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute(f"CREATE TABLE sorted AS {LARGE.replace('count(*)', '*')}")
