"""SQL over one record and across flows: what expressions may do and ask of columns, and what a result has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from coset.sources.landed_keys import with_made
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Column, Discovered
from partitioning.values import replace
from spark_jobs.sql.column_check import check_sql
from tests.checked_sql import FLIGHTS, PLANES, Build, columns, findings, pipeline


def test_a_result_has_the_columns_that_duckdb_gives_it() -> None:
    made = pipeline(
        lambda flights, planes: (
            flights.join(planes, "seats, dep_delay")
            .aggregate("count(*) AS flights, sum(seats) AS seats, avg(dep_delay) AS delay", by="seats > 100 AS large")
            .to_stream()
            .write("t")
        )
    )
    assert check_sql(made, [FLIGHTS, PLANES]) == {
        "t": (
            Column("tailnum", "VARCHAR"),
            Column("large", "BOOLEAN"),
            Column("flights", "BIGINT"),
            Column("seats", "HUGEINT"),
            Column("delay", "DOUBLE"),
        )
    }


def test_no_column_with_marks_is_offered() -> None:
    def changing(flights: Flow, _: Flow) -> None:
        late = flights.latest("hops", name="newest").filter("dep_delay > 3", name="late")
        late.rekey("plac", name="placed").aggregate("count(*) AS n").write("t", mode="upsert")

    (finding,) = findings(changing)
    assert finding.then == "correct the name; late has tailnum, dep_delay, hops, place, _offset, _partition"


def test_only_the_unknown_column_is_named_where_changing_flows_meet() -> None:
    def changing(flights: Flow, _: Flow) -> None:
        late = flights.latest("hops", name="newest").filter("dep_delay > 3", name="late")
        each = flights.aggregate("count(*) AS n", name="each")
        sums = each.combine("sum(n)::BIGINT AS n", running=True, name="sums")
        late.join(sums, "late.hops, late.plac, sums.n", name="both").write("t", mode="upsert")

    (finding,) = findings(changing)
    assert finding.what == "there is no column 'late.plac'"
    assert finding.then.startswith("correct the name; late has tailnum, dep_delay")


def test_columns_that_are_unknown_nameless_or_of_the_other_side_are_named() -> None:
    (finding,) = findings(lambda flights, _: flights.filter("dep_dela > 3", name="late").to_stream().write("t"))
    assert finding.what == "there is no column 'dep_dela'"
    assert finding.where == "step 'late'"
    assert finding.then == "correct the name; flights has tailnum, dep_delay, hops, place, _offset, _partition"
    nameless = Discovered(FLIGHTS.stream, (*FLIGHTS.columns, Column("", "BIGINT")), FLIGHTS.partitions)
    with pytest.raises(Refused, match="one of its columns has no name"):
        check_sql(pipeline(lambda flights, _: flights.filter("true").to_stream().write("t")), [nameless, PLANES])
    twice = Discovered(
        FLIGHTS.stream, (*FLIGHTS.columns, Column("at", "STRUCT(x BIGINT, X BIGINT)")), FLIGHTS.partitions
    )
    with pytest.raises(Refused, match=r'(?s)Duplicate type parameter "?X.*land it with other names of parts'):
        check_sql(pipeline(lambda flights, _: flights.filter("true").to_stream().write("t")), [twice, PLANES])
    (finding,) = findings(lambda flights, planes: flights.join(planes, "flights.seats").to_stream().write("t"))
    assert finding.what == "there is no column 'flights.seats'"
    assert "planes has tailnum, seats" in finding.then
    assert len(findings(lambda flights, _: flights.filter("nope").select("dep_delay").to_stream().write("t"))) == 1


def test_behind_a_step_that_is_refused_no_name_is_called_unknown() -> None:
    def build(flights: Flow, _: Flow) -> None:
        wrong = flights.select("nope AS flights, dep_delay AS user, hops AS current_date", name="wrong")
        wrong.aggregate("max(flights) AS f, max(user) AS u, max(current_date) AS c", name="most").to_stream().write("t")

    assert [finding.what for finding in findings(build)] == ["there is no column 'nope'"]


@pytest.mark.parametrize("name", ["rowid", "flights.rowid", "ROWID"])
def test_the_number_of_a_row_depends_on_the_tasks_and_is_no_column(name: str) -> None:
    (finding,) = findings(
        lambda flights, _: flights.aggregate(f"max({name}) AS last", name="numbered").to_stream().write("t")
    )
    assert (finding.what, finding.where) == (f"there is no column {name!r}", "step 'numbered'")


def test_each_unknown_column_of_each_step_is_a_finding() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.filter("dep_dela > 3 AND nope IS NULL").to_stream().write("t")
        planes.select("planes.sets").to_stream().write("u")

    assert [finding.what for finding in findings(build)] == [
        "there is no column 'dep_dela'",
        "there is no column 'nope'",
        "there is no column 'planes.sets'",
    ]


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
    assert columns(lambda flights, _: flights.select(expression).to_stream().write("t"))[0] == "tailnum"


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
        ("dep_delay UNION SELECT 1", "only a list of SELECT expressions is allowed here"),
        ("dep_delay; DROP TABLE flights", "Only SELECT statements"),
        ("dep_delay; SELECT 1", "only a list of SELECT expressions is allowed here"),
        ("dep_delay +", "syntax error"),
        ("dep_delay /*", "unterminated /* comment"),
        ("dep_delay -- late", "a comment at the end hides what follows it"),
        ("", "SELECT clause without selection list"),
    ],
)
def test_an_expression_whose_result_depends_on_the_tasks_is_refused(expression: str, what: str) -> None:
    found = findings(lambda flights, _: flights.select(expression, name="mine").to_stream().write("t"))
    assert any(what in finding.what for finding in found)
    assert all("step 'mine'" in finding.where for finding in found)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("at", 'a column named at is written "at"'),
        ("At::TIMESTAMP AS seen", 'a column named At is written "At"'),
        ("date_trunc('end', least(hops, end)) AS \"end\"", 'a column named end is written "end"'),
        ("at + order", None),
        ("dep_delay +", None),
    ],
)
def test_a_column_whose_name_is_a_word_of_sql_is_to_be_quoted(expression: str, words: str | None) -> None:
    (finding,) = findings(lambda flights, _: flights.select(expression, name="mine").to_stream().write("t"))
    assert finding.next == f"write DuckDB SQL expressions{'' if words is None else f'; {words}'}"


@pytest.mark.parametrize("condition", ["dep_delay > 0 LIMIT 3", "dep_delay > 0 GROUP BY ALL", "max(dep_delay) > 0"])
def test_a_filter_cannot_smuggle_in_more_than_a_condition(condition: str) -> None:
    assert findings(lambda flights, _: flights.filter(condition).to_stream().write("t"))


def test_conditions_of_joins_and_aggregates_are_checked_too_and_duckdbs_words_given() -> None:
    (finding,) = findings(
        lambda flights, planes: flights.join(planes, "seats", on="seats > random()").to_stream().write("t")
    )
    assert finding.where == "step 'flights.join': seats > random()"
    found = findings(
        lambda flights, _: flights.aggregate("max((SELECT 1)) AS a, sum(count(*)) OVER () AS b").to_stream().write("t")
    )
    assert {finding.what.split(" would")[0] for finding in found} == {"a subquery", "a window function"}
    (finding,) = findings(
        lambda flights, _: flights.select("date_trunc('day', dep_delay) AS day").to_stream().write("t")
    )
    assert finding.what.startswith("No function matches the given name and argument types 'date_trunc")


def test_result_columns_have_plain_names_once() -> None:
    (finding,) = findings(lambda flights, _: flights.select("dep_delay, dep_delay").to_stream().write("t"))
    assert (finding.what, finding.then) == (
        "two columns are named 'dep_delay'",
        "name one of them otherwise with AS, or leave it out: * EXCLUDE",
    )
    (finding,) = findings(lambda flights, _: flights.aggregate("avg(dep_delay)").to_stream().write("t"))
    assert "'avg(dep_delay)'" in finding.what
    calls = """.select('* EXCLUDE ("tailnum") RENAME ("avg(dep_delay)" AS "avg_dep_delay")')"""
    assert finding.then == f"give it a plain name with AS, or before the write by {calls}"


@pytest.mark.parametrize(
    ("named", "advised"),
    [
        ("select: tailnum, dep_delay", "dep_delay"),
        ("select: *", '* EXCLUDE ("tailnum")'),
        ("select: upper(flights.tailnum) AS TAILNUM", "upper(flights.tailnum) AS other"),
        ("aggregate: tailnum, count(*) AS n", "count(*) AS n"),
        ("join: flights.tailnum, seats", "seats"),
    ],
)
def test_a_key_that_is_named_is_there_already(named: str, advised: str) -> None:
    step, _, expressions = named.partition(": ")

    def build(columns: str) -> Build:
        return lambda f, p: getattr(f, step)(*([p] if step == "join" else []), columns).to_stream().write("t")

    (finding,) = findings(build(expressions))
    assert finding.what == "two columns are named 'tailnum': the key is there without being named"
    assert finding.then == (
        'leave tailnum out, of * by * EXCLUDE ("tailnum"); if it is another value, name it otherwise with AS'
    )
    check_sql(pipeline(build(advised)), [FLIGHTS, PLANES])


def test_a_stream_with_a_column_of_a_virtual_name_is_refused() -> None:
    def build(flights: Flow, planes: Flow) -> None:
        flights.to_stream().write("t")
        planes.to_stream().write("u")

    made = pipeline(build)
    odd = Discovered("flights", (*FLIGHTS.columns, Column("_Partition", "VARCHAR")), ())
    with pytest.raises(Refused, match="two columns are named '_partition'"):
        check_sql(made, [odd, PLANES])


@pytest.mark.parametrize("key", ["tail number", "tailnum", ("tail number", "delay of it"), ("tailnum", "flight")])
def test_the_calls_that_a_refusal_of_names_has_give_all_columns_plain_ones(key: str | tuple[str, ...]) -> None:
    columns = ["tail number", "tailnum", "flight", "delay of it", "delay_of_it", "to \"x\", 'y'", "=", " "]
    landed = [*(Column(name, "VARCHAR") for name in columns), Column("_offset", "BIGINT")]

    def checked(calls: str) -> list[str]:
        made = Pipeline("odd", source="s3://landing/topics")
        flow = made.stream("odd", key=key, partitions=4, hash="opaque")
        eval(f"flow{calls}", {"flow": flow}).write("t")
        found = Discovered("odd", with_made(made.streams[0], landed), ())
        return [column.name for column in check_sql(made, [found])["t"]]

    with pytest.raises(Refused) as refusal:
        checked("")
    named = {each.then for each in refusal.value.findings}
    assert len(refusal.value.findings) == 5
    if key == ("tail number", "delay of it"):
        assert named == {"land it under a plain name, without blanks and any of ,;{}()="}
        return
    (then,) = named
    assert isinstance(then, str)
    first = "tail_number" if key == "tail number" else "tailnum"
    names = checked(then.removeprefix("give it a plain name with AS, or before the write by "))
    assert names[0] == first
    assert sorted(names) == sorted(
        ["tail_number", "tailnum", "flight", "delay_of_it_", "delay_of_it", "to_x_y", "column", "column_"]
    )


def test_lineage_columns_must_not_be_there_already() -> None:
    def build(lineage: bool) -> Build:
        return lambda flights, _: (
            flights.select("dep_delay AS _task, 1 AS _batch").to_stream().write("t", lineage=lineage)
        )

    assert len(findings(build(True))) == 2
    assert columns(build(False)) == ["tailnum", "_task", "_batch"]


def test_partition_and_offset_are_in_a_result_only_if_asked_for() -> None:
    assert columns(lambda flights, _: flights.to_stream().write("t")) == ["tailnum", "dep_delay", "hops", "place"]
    assert columns(lambda flights, _: flights.filter("true").to_stream().write("t")) == [
        "tailnum",
        "dep_delay",
        "hops",
        "place",
    ]
    assert columns(lambda flights, _: flights.select("_partition, _offset").to_stream().write("t")) == [
        "tailnum",
        "_partition",
        "_offset",
    ]


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


def test_a_rekey_names_the_columns_there_are_or_another_name() -> None:
    (finding,) = findings(lambda flights, _: flights.rekey("tailnum", sql="'N' || tailnum").to_stream().write("t"))
    advised = finding.then.removeprefix("name the new key otherwise: ")
    made = pipeline(lambda flights, _: flights.rekey(advised, sql="'N' || tailnum").to_stream().write("t"))
    assert check_sql(made, [FLIGHTS, PLANES])["t"][:2] == (Column(advised, "VARCHAR"), Column("tailnum", "VARCHAR"))
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
