"""SQL across flows: what merges, new keys and functions ask of their columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Column, Discovered
from partitioning.values import replace
from spark_jobs.sql.column_check import check_sql
from tests.checked_sql import FLIGHTS, PLANES, Build, findings, pipeline


def test_merged_flows_need_the_same_columns_of_the_same_types() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        named = planes.select("seats::VARCHAR AS hops, seats AS dep_delay, 1 AS doors", name="named")
        flights.merge(named, name="all").filter("dep_delay > 0").to_stream().write("t")

    assert [(finding.what, finding.where) for finding in findings(build)] == [
        ("column 'hops' is VARCHAR[] in flights, VARCHAR in named", "step 'all'"),
        ("column 'place' is STRUCT(gate INTEGER) in flights, missing in named", "step 'all'"),
        ("column 'doors' is missing in flights, INTEGER in named", "step 'all'"),
    ]


def test_where_records_lie_is_in_the_way_of_no_merge_and_in_no_result() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        counted = planes.aggregate("count(*) AS n", name="counted")
        other = planes.pipeline.stream("other", key="tailnum", partitions=3, offset="at")
        other.merge(counted, name="all").to_stream().write("t")
        flights.merge(flights.filter("true"), name="both").select("_offset, _partition").to_stream().write("u")

    other = Discovered("other", (Column("tailnum", "VARCHAR"), Column("n", "BIGINT"), Column("at", "BIGINT")), ())
    found = check_sql(pipeline(build), [FLIGHTS, PLANES, other])
    assert [[column.name for column in found[table]] for table in ("t", "u")] == [
        ["tailnum", "n"],
        ["tailnum", "_offset", "_partition"],
    ]


@pytest.mark.parametrize("named", ["_offset", "a._offset", "_OFFSET + 1"])
def test_where_records_lie_cannot_be_asked_for_after_a_merge_in_which_some_have_no_place(named: str) -> None:
    def build(flights: Flow, planes: Flow) -> None:
        counted = planes.aggregate("max(seats) AS seats")
        planes.filter("true", name="a").merge(counted).filter("true").select(
            f"{named} AS at", name="late"
        ).to_stream().write("t")
        flights.to_stream().write("u")

    (finding,) = findings(build)
    assert finding.what.endswith("is not in all flows that were merged")
    assert finding.then == "select it in each of them before"


def test_a_place_that_one_of_the_merged_flows_selected_is_a_column_that_the_others_lack() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        planes.select("seats, _offset").merge(planes.filter("true"), name="all").to_stream().write("t")
        flights.to_stream().write("u")

    (finding,) = findings(build)
    assert finding.what == "column '_offset' is BIGINT in planes.select, missing in planes.filter"


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


def test_a_new_key_that_has_a_columns_name_can_be_named_as_its_refusal_says() -> None:
    (finding,) = findings(lambda flights, _: flights.rekey("tailnum", sql="'N' || tailnum").to_stream().write("t"))
    advised = finding.then.removeprefix("name the new key otherwise: ")
    made = pipeline(lambda flights, _: flights.rekey(advised, sql="'N' || tailnum").to_stream().write("t"))
    assert check_sql(made, [FLIGHTS, PLANES])["t"][:2] == (Column(advised, "VARCHAR"), Column("tailnum", "VARCHAR"))


def test_a_rekey_to_a_missing_column_names_those_there_are() -> None:
    (finding,) = findings(lambda flights, _: flights.rekey("origin").to_stream().write("t"))
    assert finding.then == "correct the name; flights has tailnum, dep_delay, hops, place, _offset, _partition"


def test_a_key_is_of_the_format_that_its_refusal_names() -> None:
    (finding,) = findings(lambda flights, _: flights.rekey("dep_delay").to_stream().write("t"))
    assert finding.then == "cast it, or declare key_format='int'"
    check_sql(
        pipeline(lambda flights, _: flights.rekey("dep_delay", key_format="int").to_stream().write("t")),
        [FLIGHTS, PLANES],
    )
    (finding,) = findings(lambda flights, _: flights.rekey("hops").to_stream().write("t"))
    assert finding.then == "cast it"


def test_a_new_key_of_each_format_can_be_made() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        for key_format in KeyFormat:
            null = f"NULL::{key_format.column_types[0]}"
            made = flights.rekey(key_format, sql=null, key_format=key_format, name=f"by_{key_format}")
            made.select("dep_delay").write(key_format)

    assert len(check_sql(pipeline(build), [FLIGHTS, PLANES])) == len(KeyFormat)


def processed(function: str, **declared: str) -> Build:
    def build(flights: Flow, planes: Flow) -> None:
        made = flights.process(function, {"tailnum": "VARCHAR", **declared}, name="scored")
        made.filter("score > 0").join(planes, "score, seats").to_stream().write("t")

    return build


def test_what_a_function_is_declared_to_give_is_a_relation_from_then_on() -> None:
    made = pipeline(processed("math:fsum", score="double precision"))
    assert check_sql(made, [FLIGHTS, PLANES])["t"] == (
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
        (
            lambda f, p: f.repartition(hash="shop.codecs:country").to_stream().write("t"),
            "'shop.codecs:country' cannot be",
        ),
    ],
)
def test_a_function_must_be_there_and_its_columns_of_some_type(build: Build, what: str) -> None:
    (finding,) = findings(build)
    assert finding.what.startswith(what)


def test_what_was_found_once_is_not_what_is_found_of_other_columns_or_where_less_may_be_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = pipeline(processed("math:fsum", score="DOUBLE"))
    others = replace(PLANES, columns=(Column("tailnum", "VARCHAR"), Column("seats", "HUGEINT"), PLANES.columns[-1]))
    seats = [check_sql(made, [FLIGHTS, planes])["t"][-1].type for planes in (PLANES, PLANES, others, PLANES)]
    assert seats == ["INTEGER", "INTEGER", "HUGEINT", "INTEGER"]
    monkeypatch.setenv("COSET_IMPORTS", "zlib")
    with pytest.raises(Refused, match="math"):
        check_sql(made, [FLIGHTS, PLANES])


def test_a_streams_placement_function_must_be_there() -> None:
    made = Pipeline("p", source="s3://landing/topics")
    made.stream("flights", key="tailnum", partitions=12, hash="shop.codecs:country").to_stream().write("t")
    with pytest.raises(Refused, match="cannot be imported") as refusal:
        check_sql(made, [FLIGHTS])
    assert refusal.value.findings[0].where == "stream 'flights'"


@pytest.mark.parametrize(
    ("column", "written", "why"),
    [
        ("_batch", {"lineage": True}, "lineage=True"),
        ("_Task", {"lineage": True}, "lineage=True"),
        ("_residue", {"mode": "upsert"}, "mode='upsert'"),
    ],
)
def test_a_column_that_a_table_adds_is_refused(column: str, written: dict[str, Any], why: str) -> None:
    (finding,) = findings(lambda f, p: f.select(f"1 AS {column}").to_stream().write("t", **written))
    assert finding.what == f"column '{column}' is there already, and {why} adds one of that name"


@pytest.mark.parametrize("kind", ["VARCHAR", "DATE", "BOOLEAN", "STRUCT(a INTEGER)", "DECIMAL(9,2)", "BIGINT[]"])
def test_a_merge_takes_a_null_without_a_type_as_that_of_the_other(kind: str) -> None:
    def build(flights: Flow, _: Flow) -> None:
        first = flights.select(f"NULL::{kind} AS word", name="first")
        nothing = flights.select("NULL AS word", name="nothing").filter("word IS NULL", name="second")
        nothing.merge(first, name="both").filter("true").to_stream().write("t")

    assert check_sql(pipeline(build), [FLIGHTS, PLANES])["t"][-1] == Column("word", kind)


def test_a_merge_of_other_types_is_refused_beside_a_null_too() -> None:
    def build(flights: Flow, _: Flow) -> None:
        first, second, third = (
            flights.select(f"{sql} AS word", name=name) for name, sql in (("a", "'late'"), ("b", "NULL"), ("c", "1"))
        )
        first.merge(second, third, name="all").to_stream().write("t")

    (finding,) = findings(build)
    assert finding.what == "column 'word' is VARCHAR in a, INTEGER in c"


@pytest.mark.parametrize("how", ["latest", "keep", "as of"])
def test_a_column_called_as_its_flow_would_hide_the_rows_that_are_ordered(how: str) -> None:
    def checked(*, renamed: bool) -> None:
        made = Pipeline("p", source="s3://landing/topics")
        declared: Any = {"partitions": 8, "key": "tailnum", "time": "make_timestamp(dep_delay)"}
        flights = made.stream("flights", **declared)
        delays = flights.select("dep_delay", name="dep_delay")
        delays = delays.filter("true", name="delays") if renamed else delays
        if how == "as of":
            hour = timedelta(hours=1)
            times = ("make_timestamp(flights.dep_delay)", f"make_timestamp({delays.alias}.dep_delay)")
            flights.join_as_of(delays, "1 AS n", times=times, keep=hour, wait=hour, name="at").to_stream().write("t")
        else:
            life: Any = {"time": "make_timestamp(dep_delay)", "keep": timedelta(hours=1)} if how == "keep" else {}
            delays.latest("dep_delay", name="newest", **life).to_stream().write("t", mode="upsert")
        check_sql(made, [FLIGHTS])

    with pytest.raises(Refused) as refused:
        checked(renamed=False)
    finding = refused.value.findings[0]
    assert "column 'dep_delay' is called as its flow, so which of two equal records is the latest" in finding.what
    assert finding.then == "name the flow otherwise before: filter('true', name='…')"
    checked(renamed=True)
