"""From which columns of streams the columns of result tables are made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coset.lineage.columns import column_origins
from partitioning.authoring.flow import Flow
from spark_jobs.sql.column_check import check_sql
from tests.checked_sql import FLIGHTS, PLANES, Build, pipeline

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
