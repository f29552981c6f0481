"""SQL: what an expression may do, what a result holds, what a task has to read, what the database can reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from partitioning.errors import Finding, Refused
from partitioning.pipeline import Flow, Pipeline
from partitioning.plan import PlannedStream
from partitioning.stages import cut
from partitioning.streams import Column, Discovered
from spark_jobs.sql import check, columns_needed, connect, create_views

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
    stages = cut(made, check(made, [FLIGHTS, PLANES]))
    stage = next(each for each in stages if stream.stream in each.streams)
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
    (stage,) = cut(made, check(made, [FLIGHTS, PLANES]))
    with connect() as connection:
        connection.execute("CREATE TABLE flights AS SELECT 'N1' AS tailnum, 5 AS dep_delay")
        connection.execute("CREATE TABLE planes AS SELECT 'N1' AS tailnum, 100 AS seats")
        create_views(connection, stage.steps)
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
