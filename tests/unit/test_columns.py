"""The columns that a task has to read, and from which columns of streams those of results are made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coset.lineage.facets import column_origins
from partitioning.authoring.flow import Flow
from spark_jobs.engine.task_database import connect
from spark_jobs.sql.column_check import check_sql
from spark_jobs.sql.database import create_views
from tests.checked_sql import FLIGHTS, PLANES, Build, needed, pipeline


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


TAIL, DELAY, HOPS = (f"flights.{name}" for name in ("tailnum", "dep_delay", "hops"))
SEATS, PLANE = "planes.seats", "planes.tailnum"
DAY = timedelta(days=1)


def origins(build: Build) -> dict[str, set[str] | None]:
    """By column of the table t, sorted by their names, what each is made of."""
    made = pipeline(build)
    results, found = check_sql(made, [FLIGHTS, PLANES]), {each.stream: each.columns for each in (FLIGHTS, PLANES)}
    of_table = column_origins([(stream, found[stream.name]) for stream in made.streams], reversed(made.steps))
    told = of_table(made.writes[0], [column.name for column in results["t"]])
    return {
        name: each if each is None else {f"{one.stream}.{one.column}" for one in each} for name, each in told.items()
    }


def joined(flights: Flow, planes: Flow) -> None:
    late = flights.filter("dep_delay > 5").select("dep_delay AS late, len(hops) AS hops, 1 AS one", name="late")
    late.join(planes, "late.late + planes.seats AS both, seats, hops, one").write("t")


def aggregated(flights: Flow, planes: Flow) -> None:
    flights.aggregate("count(*) AS n, sum(dep_delay + 1)::BIGINT AS total", by="len(hops) AS many").write("t")


def met(flights: Flow, planes: Flow) -> None:
    flights.cogroup("max(dep_delay) AS most", (planes, "max(seats) AS seats"), name="met").write("t")


def merged(flights: Flow, planes: Flow) -> None:
    one, other = flights.select("dep_delay AS x", name="one"), planes.select("seats AS x", name="other")
    one.merge(other, name="all").write("t")


def of_lists(flights: Flow, planes: Flow) -> None:
    flights.select(
        "list_transform(hops, lambda seats: seats || tailnum) AS named, place.gate AS gate, dep_delay AS d, d + 1 AS e"
    ).write("t")


def kept(flights: Flow, planes: Flow) -> None:
    when = "make_timestamp(dep_delay)"
    flights.distinct("len(hops)", time=when, within=DAY, name="once").select("dep_delay, hops").write("t")


def newest(flights: Flow, planes: Flow) -> None:
    flights.latest("dep_delay", name="newest").select("hops").to_stream().write("t", mode="append")


def within(flights: Flow, planes: Flow) -> None:
    times = ("make_timestamp(flights.dep_delay)", "make_timestamp(planes.seats)")
    flights.join_within(planes.to_stream(), "flights.hops, seats", times=times, within=DAY).write("t")


def rekeyed(flights: Flow, planes: Flow) -> None:
    flights.rekey("long", sql="tailnum || len(hops)").aggregate("max(dep_delay) AS most").write("t")


def in_parts(flights: Flow, planes: Flow) -> None:
    parts = flights.partial("sum(dep_delay)::BIGINT AS total", by="tailnum", name="parts")
    parts.combine("sum(total)::BIGINT AS total", running=True, name="sums").to_stream().write("t")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (joined, {"tailnum": {TAIL}, "both": {DELAY, SEATS}, "seats": {SEATS}, "hops": {HOPS}, "one": set()}),
        (aggregated, {"tailnum": {TAIL}, "many": {HOPS}, "n": set(), "total": {DELAY}}),
        (met, {"tailnum": {TAIL, PLANE}, "most": {DELAY}, "seats": {SEATS}}),
        (merged, {"tailnum": {TAIL, PLANE}, "x": {DELAY, SEATS}}),
        (of_lists, {"tailnum": {TAIL}, "named": {HOPS, TAIL}, "gate": {"flights.place"}, "d": {DELAY}, "e": {DELAY}}),
        (kept, {"tailnum": {TAIL}, "dep_delay": {DELAY}, "hops": {HOPS}}),
        (newest, {"tailnum": {TAIL}, "hops": {HOPS}}),
        (within, {"tailnum": {TAIL}, "hops": {HOPS}, "seats": {SEATS}}),
        (rekeyed, {"long": {TAIL, HOPS}, "most": {DELAY}}),
        (in_parts, {"tailnum": {TAIL}, "total": {DELAY}}),
    ],
)
def test_the_sql_of_the_steps_says_what_a_column_is_made_of(build: Build, told: dict[str, set[str]]) -> None:
    assert origins(build) == told


def test_what_a_function_makes_is_not_known_and_neither_is_what_comes_after_it() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        made = flights.process("tests.functions:doubled", {"tailnum": "VARCHAR", "x": "INTEGER"}, name="made")
        made.join(planes, "made.x, planes.seats").write("t")

    assert origins(build) == {"tailnum": None, "x": None, "seats": None}


def test_nothing_is_said_of_a_table_of_no_step() -> None:
    assert column_origins([], [])(pipeline(joined).writes[0], ["a"]) == {"a": None}
