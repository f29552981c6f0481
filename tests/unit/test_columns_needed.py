"""The columns that a task has to read: those that its steps and tables need."""

from __future__ import annotations

from partitioning.authoring.flow import Flow
from spark_jobs.engine.task_database import connect
from spark_jobs.sql.database import create_views
from tests.checked_sql import FLIGHTS, PLANES, needed, pipeline


def test_a_function_is_given_all_columns_that_reach_it() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("dep_delay > 0").process("math:fsum", {"tailnum": "VARCHAR"}).to_stream().write("t")
        planes.to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "hops", "place", "_offset")


def test_a_function_behind_a_select_is_given_what_was_selected() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.select("dep_delay").process("math:fsum", {"tailnum": "VARCHAR"}).to_stream().write("t")
        planes.to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")


def test_merged_flows_need_what_is_named_before_and_after() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        late = flights.filter("dep_delay > 0")
        late.merge(
            flights, planes.select("seats AS dep_delay, NULL::VARCHAR[] AS hops, NULL::STRUCT(gate INTEGER) AS place")
        ).aggregate("max(place.gate) AS gate").to_stream().write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "place")


def test_a_new_key_is_needed() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.rekey("dep_delay", key_format="int").aggregate("count(*) AS n").to_stream().write("t")
        planes.rekey("double", sql="2 * seats", key_format="int").aggregate("count(*) AS n").to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_both_sides_of_a_cogroup_need_the_columns_of_their_aggregates() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.cogroup("max(dep_delay) AS late", (planes, "sum(seats) AS seats")).to_stream().write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_only_columns_that_are_named_are_needed_and_the_key() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("DEP_DELAY > 0").join(planes, "seats").aggregate("sum(seats) AS seats").to_stream().write("t")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay")
    assert needed(build, PLANES) == ("tailnum", "seats")


def test_a_star_needs_all_columns() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.join(planes, "flights.* EXCLUDE (tailnum)").to_stream().write("t")

    assert needed(build, FLIGHTS) == tuple(column.name for column in FLIGHTS.columns)


def test_counting_rows_needs_the_key_only() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.aggregate("count(*) AS n").to_stream().write("t")
        planes.to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum",)


def test_fields_of_a_record_need_its_column() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.select("place.gate AS gate").to_stream().write("t")
        planes.to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "place")


def test_what_a_filter_passes_on_to_a_table_is_needed() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("dep_delay > 0").to_stream().write("t")
        planes.to_stream().write("u")

    assert needed(build, FLIGHTS) == ("tailnum", "dep_delay", "hops", "place")


def test_the_columns_needed_are_enough_to_make_the_views() -> None:
    made = pipeline(
        lambda flights, planes: flights.filter("dep_delay > 0").join(planes, "seats").to_stream().write("t")
    )
    with connect() as connection:
        connection.execute("CREATE TEMP TABLE flights AS SELECT 'N1' AS tailnum, 5 AS dep_delay")
        connection.execute("CREATE TEMP TABLE planes AS SELECT 'N1' AS tailnum, 100 AS seats")
        create_views(connection, made.steps)
        assert connection.execute('FROM "flights.filter.join"').fetchall() == [("N1", 100)]
